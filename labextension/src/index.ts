/** The extension: puts the panel, the status bar's item, the commands and the card in their places. */

import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { addCommands, Command } from './commands';
import { Desk } from './desk';
import { StatusItem } from './statusbar';
import { RoomStream } from './stream';
import { tellWhatMatters } from './telling';
import { GPUPanel } from './ui/Panel';

const ID = 'workshop-gpu:plugin';

interface Settings {
  area: 'left' | 'right';
  statusBar: boolean;
  openAtStart: boolean;
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'The GPU panel: who uses the GPUs, who waits, and what the instructor does.',
  autoStart: true,
  optional: [
    ISettingRegistry,
    ITranslator,
    ICommandPalette,
    IStatusBar,
    ILauncher,
    ILayoutRestorer
  ],
  activate: async (
    app: JupyterFrontEnd,
    registry: ISettingRegistry | null,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    statusBar: IStatusBar | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null
  ) => {
    const trans = (translator ?? nullTranslator).load('workshop_gpu');
    const desk = new Desk(app, new RoomStream(app.serviceManager.serverSettings), trans);
    addCommands(desk, palette, launcher);
    tellWhatMatters(desk);
    const settings = await settingsOf(registry);
    const panel = new GPUPanel(desk);
    app.shell.add(panel, settings.area, { rank: 300, type: 'GPU' });
    restorer?.add(panel, panel.id);
    if (settings.statusBar) {
      const open = () => void app.commands.execute(Command.open);
      statusBar?.registerStatusItem(ID, {
        item: new StatusItem(desk, open),
        align: 'right',
        rank: 50
      });
    }
    if (settings.openAtStart) {
      void app.restored.then(() => app.shell.activateById(panel.id));
    }
  }
};

async function settingsOf(registry: ISettingRegistry | null): Promise<Settings> {
  const usual: Settings = { area: 'right', statusBar: true, openAtStart: false };
  try {
    return { ...usual, ...(await registry?.load(ID))?.composite } as Settings;
  } catch (error) {
    console.warn('The settings of the GPU panel could not be read; the usual ones count.', error);
    return usual;
  }
}

export default plugin;
