/** What all parts of the panel work with. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { isMineIn } from './mine';
import type { RoomStream } from './stream';
import type { IsMine } from './view';

export class Desk {
  /** The instructor's tab that was shown last: a panel that is hidden forgets what it drew. */
  tab = 'now';

  constructor(
    readonly app: JupyterFrontEnd,
    readonly stream: RoomStream,
    readonly trans: TranslationBundle
  ) {}

  get settings(): ServerConnection.ISettings {
    return this.app.serviceManager.serverSettings;
  }

  /** As the documents are open now. */
  get isMine(): IsMine {
    return isMineIn(this.app.shell);
  }
}
