import React from 'react';
import type { Desk } from '../desk';
import { clock } from '../format';
import type { AuditEntry } from '../types';
import { useDoing } from './Doing';
import { useAnswer } from './hooks';

const SHOWN = 100;

/** What instructors did, the latest first. */
export function LogTab({ desk }: { desk: Desk }) {
  const { trans } = desk;
  const { round } = useDoing();
  const { answer, problem } = useAnswer<{ entries: AuditEntry[] }>(desk, 'audit', round);
  if (!answer) {
    return <p className="jp-wg-quiet">{problem || trans.__('Asking …')}</p>;
  }
  return (
    <section className="jp-wg-log">
      {answer.entries.length === 0 && (
        <p className="jp-wg-quiet">{trans.__('No instructor has changed anything yet.')}</p>
      )}
      <ul>
        {answer.entries.slice(0, SHOWN).map((entry, i) => (
          <li key={`${entry.at} ${i}`}>
            <time>{clock(entry.at)}</time> {entry.who} {entry.action} {entry.subject}
            <span className="jp-wg-detail">{details(entry)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function details(entry: AuditEntry): string {
  return Object.entries(entry.details)
    .filter(([, value]) => value !== null && value !== '')
    .map(([name, value]) => `${name}: ${value}`)
    .join(', ');
}
