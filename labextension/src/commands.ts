/** What can be done from the palette, with keys, and from the launcher. */

import type { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import { InputDialog, Notification, type ICommandPalette } from '@jupyterlab/apputils';
import type { ILauncher } from '@jupyterlab/launcher';
import { ask } from './api';
import type { Desk } from './desk';
import { gpuIcon } from './icon';
import { GPUPanel } from './ui/Panel';

export const Command = {
  open: 'workshop-gpu:open',
  first: 'workshop-gpu:first-notebook',
  help: 'workshop-gpu:help',
  handDown: 'workshop-gpu:hand-down'
} as const;

const CATEGORY = 'GPU';
/** Pixels. */
const NARROW = 700;
/** Where the first notebook lies, if the instructor put the notebooks there. */
const FIRST = ['01-first-image.ipynb', 'notebooks/01-first-image.ipynb'];
const FIRST_CELLS = ['import workshop_gpu as wg\n\nwg.Studio()', 'wg.status()'];

export function addCommands(
  desk: Desk,
  palette: ICommandPalette | null,
  launcher: ILauncher | null
): void {
  const { app, trans } = desk;
  app.commands.addCommand(Command.open, {
    label: trans.__('Show the GPU Panel'),
    caption: trans.__('Who uses the GPU, who waits'),
    icon: gpuIcon,
    execute: () => {
      makeRoom(app);
      app.shell.activateById(GPUPanel.id);
    }
  });
  app.commands.addCommand(Command.first, {
    label: args =>
      args['isLauncher'] ? trans.__('First image') : trans.__('Open the First Notebook'),
    caption: trans.__('A notebook that draws your first picture'),
    icon: gpuIcon,
    execute: () => openFirst(desk)
  });
  app.commands.addCommand(Command.help, {
    label: trans.__('Ask the Instructor for Help'),
    caption: trans.__('The instructor sees your name and your notebook'),
    isEnabled: () => !myCall(desk),
    execute: () => askForHelp(desk)
  });
  app.commands.addCommand(Command.handDown, {
    label: trans.__('Take My Call for Help Back'),
    isEnabled: () => myCall(desk),
    execute: () => orTell(ask(desk.settings, 'DELETE', 'help'))
  });
  for (const command of Object.values(Command)) {
    palette?.addItem({ command, category: CATEGORY });
  }
  launcher?.add({
    command: Command.first,
    category: CATEGORY,
    rank: 1,
    args: { isLauncher: true }
  });
}

/** Where two side panels do not fit, the other one closes. */
function makeRoom(app: JupyterFrontEnd): void {
  const shell: unknown = app.shell;
  if (window.innerWidth < NARROW && isLabShell(shell)) {
    shell.collapseLeft();
  }
}

function isLabShell(shell: unknown): shell is Pick<ILabShell, 'collapseLeft'> {
  return typeof (shell as Partial<ILabShell>).collapseLeft === 'function';
}

const myCall = (desk: Desk): boolean => !!desk.stream.room?.help.some(call => call.mine);

async function askForHelp(desk: Desk): Promise<void> {
  const { trans } = desk;
  const result = await InputDialog.getText({
    title: trans.__('Ask the instructor for help'),
    label: trans.__('What about? (optional)'),
    okLabel: trans.__('Ask')
  });
  if (!result.button.accept) {
    return;
  }
  const place = desk.app.shell.currentWidget?.title.label ?? '';
  const text = [result.value?.trim(), place && trans.__('in %1', place)].filter(Boolean).join(' ');
  const call = ask(desk.settings, 'POST', 'help', { text: text.slice(0, 200) });
  await orTell(
    call.then(() => {
      Notification.success(trans.__('The instructor sees your call.'), { autoClose: 3000 });
    })
  );
}

/** A refusal is told in the server's words. */
async function orTell(asked: Promise<unknown>): Promise<void> {
  try {
    await asked;
  } catch (error) {
    Notification.error((error as Error).message);
  }
}

/** The workshop's own first notebook; where there is none, a new one that does the same. */
async function openFirst(desk: Desk): Promise<unknown> {
  const { contents, kernelspecs } = desk.app.serviceManager;
  for (const path of FIRST) {
    const there = await contents.get(path, { content: false }).then(
      () => true,
      () => false
    );
    if (there) {
      return desk.app.commands.execute('docmanager:open', { path });
    }
  }
  const model = await contents.newUntitled({ type: 'notebook' });
  const cells = FIRST_CELLS.map((source, i) => ({
    cell_type: 'code',
    id: `first-${i}`,
    source,
    metadata: {},
    outputs: [],
    execution_count: null
  }));
  await kernelspecs.ready;
  const spec = kernelspecs.specs?.kernelspecs[kernelspecs.specs.default];
  // Without it a person who sees a notebook for the first time would be asked for a kernel.
  const metadata = spec
    ? { kernelspec: { name: spec.name, display_name: spec.display_name, language: spec.language } }
    : {};
  const content = { cells, metadata, nbformat: 4, nbformat_minor: 5 };
  await contents.save(model.path, { type: 'notebook', format: 'json', content });
  return desk.app.commands.execute('docmanager:open', { path: model.path });
}
