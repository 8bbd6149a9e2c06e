/** Which jobs are of the one who looks: their own, and those of the notebooks open in this tab. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { IsMine } from './view';

interface WithSession {
  sessionContext?: ISessionContext;
  context?: { sessionContext?: ISessionContext };
}

/** Looks at the open documents anew each time. */
export function openKernels(shell: JupyterFrontEnd.IShell): Set<string> {
  const kernels = new Set<string>();
  for (const widget of shell.widgets('main')) {
    const { sessionContext, context } = widget as unknown as WithSession;
    const kernel = (sessionContext ?? context?.sessionContext)?.session?.kernel?.id;
    if (kernel) {
      kernels.add(kernel);
    }
  }
  return kernels;
}

export function isMineIn(shell: JupyterFrontEnd.IShell): IsMine {
  const kernels = openKernels(shell);
  return job => job.mine || (!!job.kernel && kernels.has(job.kernel));
}
