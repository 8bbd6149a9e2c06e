/** What the parts of the panel listen to. */

import { useEffect, useReducer, useRef, useState } from 'react';
import { ask } from '../api';
import { joined } from '../chart';
import type { Desk } from '../desk';
import type { Room } from '../room';
import type { Link, RoomStream } from '../stream';
import type { History } from '../types';

/** As often as the server notes a point. */
const HISTORY_EVERY_S = 10;

/** Draws anew whenever room or link change. */
export function useRoom(stream: RoomStream): { room: Room | null; link: Link } {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    stream.changed.connect(again);
    return () => {
      stream.changed.disconnect(again);
    };
  }, [stream]);
  return { room: stream.room, link: stream.link };
}

/** Seconds since 1970, anew each `every_s`. */
export function useNow(every_s = 1): number {
  const [now, set] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = window.setInterval(() => set(Date.now() / 1000), every_s * 1000);
    return () => window.clearInterval(timer);
  }, [every_s]);
  return now;
}

/** Whether somebody can see the page: what nobody sees asks the server for nothing. */
export function useVisible(): boolean {
  const [visible, set] = useState(!document.hidden);
  useEffect(() => {
    const look = () => set(!document.hidden);
    document.addEventListener('visibilitychange', look);
    return () => document.removeEventListener('visibilitychange', look);
  }, []);
  return visible;
}

/** An answer of the server, asked for again each `every_s` and whenever `occasion` changes. */
export function useAnswer<T>(
  desk: Desk,
  path: string,
  occasion: unknown,
  every_s = 10
): { answer: T | null; problem: string } {
  const [got, set] = useState<{ answer: T | null; problem: string }>({ answer: null, problem: '' });
  const [round, next] = useReducer((n: number) => n + 1, 0);
  const visible = useVisible();
  useEffect(() => {
    if (!visible) {
      return;
    }
    let gone = false;
    ask<T>(desk.settings, 'GET', path).then(
      answer => gone || set({ answer, problem: '' }),
      (error: Error) => gone || set(before => ({ ...before, problem: error.message }))
    );
    const timer = window.setTimeout(next, every_s * 1000);
    return () => {
      gone = true;
      window.clearTimeout(timer);
    };
  }, [desk, path, occasion, round, every_s, visible]);
  return got;
}

/** The last half hour; after the first time only what is new is asked for. */
export function useHistory(desk: Desk): History | null {
  const [history, set] = useState<History | null>(null);
  const known = useRef<History | null>(null);
  const visible = useVisible();
  const { link } = desk.stream;
  useEffect(() => {
    const look = async () => {
      const latest = known.current?.points.at(-1)?.at ?? 0;
      const news = await ask<History>(desk.settings, 'GET', `history?after=${latest}`);
      known.current = joined(known.current, news);
      set(known.current);
    };
    if (!visible || link !== 'live') {
      return;
    }
    const quietly = () => void look().catch(() => undefined); // the stream tells of a broken line
    quietly();
    const timer = window.setInterval(quietly, HISTORY_EVERY_S * 1000);
    return () => window.clearInterval(timer);
  }, [desk, visible, link]);
  return history;
}
