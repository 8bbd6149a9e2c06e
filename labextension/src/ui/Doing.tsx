/** Buttons that ask before they do something, and say afterwards what came of it. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import React, { createContext, useCallback, useContext, useState } from 'react';
import type { Action } from '../actions';
import { ask } from '../api';
import type { Desk } from '../desk';
import type { Choice } from '../plan';

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

/** What was typed in or chosen ("" where nothing is), or null if the person thought better of it. */
async function confirmed(action: Action, desk: Desk): Promise<string | null> {
  const body = new Question(action, await choicesFor(action, desk));
  const ok = { label: action.label, className: 'jp-wg-ok' };
  const result = await showDialog<string>({
    title: action.title,
    body,
    buttons: [
      Dialog.cancelButton({ label: desk.trans.__('Leave it') }),
      action.hurts ? Dialog.warnButton(ok) : Dialog.okButton(ok)
    ],
    defaultButton: action.hurts ? 0 : 1,
    focusNodeSelector: action.input ? 'input, select' : ''
  });
  return result.button.accept ? (result.value ?? '') : null;
}

/** Whoever cannot be asked for a list leaves the person to type. */
async function choicesFor({ input }: Action, desk: Desk): Promise<Choice[]> {
  const { choices } = input ?? {};
  return choices ? ask(desk.settings, 'GET', choices.path).then(choices.of, () => []) : [];
}

/** Plain nodes: text is text, whoever wrote it. */
class Question extends Widget implements Dialog.IBodyWidget<string> {
  constructor(action: Action, choices: Choice[]) {
    super();
    const before = document.createElement('p');
    before.textContent = action.before;
    this.node.append(before);
    this.field = choices.length ? listOf(choices) : document.createElement('input');
    if (action.input) {
      const label = document.createElement('label');
      label.textContent = action.input.label;
      this.field.value = action.input.value;
      this.field.className = 'jp-mod-styled';
      label.append(this.field);
      this.node.append(label);
    }
    this.addClass('jp-wg-question');
  }

  getValue(): string {
    return this.field.value;
  }

  private readonly field: HTMLInputElement | HTMLSelectElement;
}

function listOf(choices: Choice[]): HTMLSelectElement {
  const list = document.createElement('select');
  list.append(...choices.map(({ value, words }) => new Option(words, value)));
  return list;
}
