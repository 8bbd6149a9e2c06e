/** Buttons that ask before they do something, and say afterwards what came of it. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import React, { createContext, useCallback, useContext, useState } from 'react';
import type { Action } from '../actions';
import { ask } from '../api';
import type { Desk } from '../desk';

interface Doing {
  act: (action: Action) => Promise<boolean>;
  /** Counts what was done, so that lists are asked for again. */
  round: number;
}

const Context = createContext<Doing>({ act: async () => false, round: 0 });

export const useDoing = (): Doing => useContext(Context);

/** Around all that has such buttons; shows the last outcome on top. */
export function DoingHere({ desk, children }: React.PropsWithChildren<{ desk: Desk }>) {
  const [outcome, tell] = useState<{ text: string; failed: boolean } | null>(null);
  const [round, setRound] = useState(0);
  const act = useCallback(
    async (action: Action) => {
      const text = await confirmed(action, desk);
      if (text === null) {
        return false;
      }
      try {
        await ask(desk.settings, action.method, action.path, action.body?.(text));
        tell({ text: action.done, failed: false });
        return true;
      } catch (error) {
        tell({ text: (error as Error).message, failed: true });
        return false;
      } finally {
        setRound(n => n + 1);
      }
    },
    [desk]
  );
  return (
    <Context.Provider value={{ act, round }}>
      <div role="status" className="jp-wg-outcome">
        {outcome && (
          <p className={`jp-wg-note${outcome.failed ? ' jp-mod-error' : ' jp-mod-done'}`}>
            {outcome.text}
            <button
              type="button"
              className="jp-wg-close"
              aria-label={desk.trans.__('Close')}
              onClick={() => tell(null)}
            >
              ×
            </button>
          </p>
        )}
      </div>
      {children}
    </Context.Provider>
  );
}

/** A button for an action; `sign` stands for its label where there is little room. */
export function Do({ action, sign }: { action: Action; sign?: string }) {
  const { act } = useDoing();
  return (
    <button
      type="button"
      className={`jp-wg-do${sign ? ' jp-mod-short' : ''}`}
      title={sign ? action.title : action.before}
      aria-label={action.label}
      onClick={() => void act(action)}
    >
      {sign ?? action.label}
    </button>
  );
}

/** What was typed in ("" where nothing is), or null if the person thought better of it. */
async function confirmed(action: Action, desk: Desk): Promise<string | null> {
  const body = new Question(action);
  const ok = { label: action.label, className: 'jp-wg-ok' };
  const result = await showDialog<string>({
    title: action.title,
    body,
    buttons: [
      Dialog.cancelButton({ label: desk.trans.__('Leave it') }),
      action.hurts ? Dialog.warnButton(ok) : Dialog.okButton(ok)
    ],
    defaultButton: action.hurts ? 0 : 1,
    focusNodeSelector: action.input ? 'input' : ''
  });
  return result.button.accept ? (result.value ?? '') : null;
}

/** Plain nodes: text is text, whoever wrote it. */
class Question extends Widget implements Dialog.IBodyWidget<string> {
  constructor(action: Action) {
    super();
    const before = document.createElement('p');
    before.textContent = action.before;
    this.node.append(before);
    if (action.input) {
      const label = document.createElement('label');
      label.textContent = action.input.label;
      this.input.value = action.input.value;
      this.input.className = 'jp-mod-styled';
      label.append(this.input);
      this.node.append(label);
    }
    this.addClass('jp-wg-question');
  }

  getValue(): string {
    return this.input.value;
  }

  private readonly input = document.createElement('input');
}
