/** The lines of the small charts. Pure. */

import type { History } from './types';

export const SPAN_S = 1800;

/** One moment of the room. */
export interface Sample {
  /** Seconds since 1970. */
  at: number;
  value: number;
}

/**
 * The line through the samples in a box `width` × `height`, as the `d` of an SVG path; the time
 * from `from` to `to` fills the width, `most` the height. Gaps longer than `gap_s` stay gaps.
 */
export function line(
  samples: readonly Sample[],
  box: { width: number; height: number; from: number; to: number; most: number; gap_s: number }
): string {
  let before: number | null = null;
  const words: string[] = [];
  for (const { at, value } of samples) {
    if (at < box.from || at > box.to) {
      continue;
    }
    const x = ((at - box.from) / (box.to - box.from)) * box.width;
    const y = box.height * (1 - Math.min(1, Math.max(0, value / box.most)));
    const joined = before !== null && at - before <= box.gap_s;
    words.push(`${joined ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`);
    before = at;
  }
  return words.join(' ');
}

/** A round number not below the largest value, for the top of a chart; at least `least`. */
export function top(samples: readonly Sample[], least: number): number {
  const most = Math.max(least, ...samples.map(sample => sample.value));
  const step = 10 ** Math.floor(Math.log10(most));
  return ([1, 2, 5, 10].find(factor => factor * step >= most) ?? 10) * step;
}

/** A history with what came after it; points older than half an hour go. */
export function joined(before: History | null, news: History): History {
  const latest = before?.points.at(-1)?.at ?? 0;
  const points = [...(before?.points ?? []), ...news.points.filter(point => point.at > latest)];
  return { ...news, points: points.filter(point => point.at > news.now - SPAN_S) };
}
