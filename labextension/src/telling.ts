/** Tells people what they should not miss, whether the panel is open or not. */

import { Notification } from '@jupyterlab/apputils';
import type { Desk } from './desk';

const SHOWN_MS = 10_000;

/** The instructor's message for all; for instructors a hand that goes up. */
export function tellWhatMatters(desk: Desk): void {
  const { stream, trans } = desk;
  const told = new Set<string>();
  const once = (key: string, text: string) => {
    if (!told.has(key)) {
      told.add(key);
      Notification.info(text, { autoClose: SHOWN_MS });
    }
  };
  stream.changed.connect(() => {
    const { room } = stream;
    if (!room) {
      return;
    }
    const { message } = room;
    if (message && message.who !== room.me.name) {
      once(`message ${message.at}`, trans.__('%1: %2', message.who, message.text));
    }
    for (const call of room.help) {
      if (!call.mine) {
        once(`help ${call.participant} ${call.at}`, trans.__('%1 asks for help.', call.name));
      }
    }
  });
}
