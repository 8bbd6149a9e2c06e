/** Numbers as people read them. `trans` comes from JupyterLab, so that words can be translated. */

export interface Trans {
  __(text: string, ...args: unknown[]): string;
  _n(one: string, many: string, n: number, ...args: unknown[]): string;
}

/** "3.1 GB", "42 MB". */
export function amount(bytes: number): string {
  if (bytes >= 1e9) {
    return `${(bytes / 1e9).toFixed(bytes >= 1e11 ? 0 : 1)} GB`;
  }
  return `${(bytes / 1e6).toFixed(bytes >= 1e7 || bytes < 1e5 ? 0 : 1)} MB`;
}

/** "61/80 GB", both in the unit of the larger one. */
export function amountOf(part_bytes: number, whole_bytes: number): string {
  const [unit, size] = whole_bytes >= 1e9 ? ['GB', 1e9] : ['MB', 1e6];
  const whole = whole_bytes / size;
  const digits = whole < 10 ? 1 : 0;
  const part = Math.max(0, part_bytes) / size;
  return `${part.toFixed(digits)}/${whole.toFixed(digits)} ${unit}`;
}

/** "20 s", "3 min", "2 h". */
export function span(seconds: number): string {
  if (seconds < 90) {
    return `${Math.max(0, Math.round(seconds))} s`;
  }
  if (seconds < 5400) {
    return `${Math.round(seconds / 60)} min`;
  }
  return `${Math.round(seconds / 3600)} h`;
}

/** How long something takes, also where that is short: "0.4 s". */
export function took(seconds: number): string {
  return seconds < 9.95 ? `${seconds.toFixed(1)} s` : span(seconds);
}

/** When a waiting job starts: "any moment", "in 20 s", "in 3 min". */
export function startsIn(seconds: number | null, trans: Trans): string {
  if (seconds === null) {
    return trans.__('waits');
  }
  return seconds < 1.5 ? trans.__('any moment') : trans.__('in %1', span(seconds));
}

/** "12:05:31", of seconds since 1970, in the browser's zone. */
export function clock(at_s: number): string {
  return new Date(at_s * 1000).toTimeString().slice(0, 8);
}
