/** What the parts of the panel listen to. */

import { useEffect, useReducer, useState } from 'react';
import { ask } from '../api';
import type { Desk } from '../desk';
import type { Room } from '../room';
import type { Link, RoomStream } from '../stream';

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

/** An answer of the server, asked for again each `every_s` and whenever `occasion` changes. */
export function useAnswer<T>(
  desk: Desk,
  path: string,
  occasion: unknown,
  every_s = 10
): { answer: T | null; problem: string } {
  const [got, set] = useState<{ answer: T | null; problem: string }>({ answer: null, problem: '' });
  const [round, next] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
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
  }, [desk, path, occasion, round, every_s]);
  return got;
}
