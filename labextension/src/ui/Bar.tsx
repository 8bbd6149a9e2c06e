import React from 'react';
import { amount } from '../format';
import type { Bar, Part } from '../view';

/** One GPU: a bar of its memory, and the legend that is also the list. */
export function DeviceBar({ bar, children }: React.PropsWithChildren<{ bar: Bar }>) {
  const told = bar.parts.map(part => `${part.label} ${amount(part.bytes)}`).join(', ');
  return (
    <section className="jp-wg-device" data-device={bar.device}>
      <header className="jp-wg-row">
        <h3>{bar.title}</h3>
        <span className="jp-wg-number">{bar.used}</span>
      </header>
      {bar.note && <p className="jp-wg-note">{bar.note}</p>}
      <div className="jp-wg-bar" role="img" aria-label={told}>
        {bar.parts.map(part => (
          <BarPiece key={part.key} part={part} />
        ))}
      </div>
      <ul className="jp-wg-legend">
        {bar.parts.map(part => (
          <li key={part.key} data-look={part.look}>
            <span className={`jp-wg-swatch jp-mod-${part.look}`} />
            <span className="jp-wg-label">
              {part.label}
              {part.detail && <span className="jp-wg-detail">{part.detail}</span>}
            </span>
            <span className="jp-wg-number">{amount(part.bytes)}</span>
          </li>
        ))}
      </ul>
      {children}
    </section>
  );
}

function BarPiece({ part }: { part: Part }) {
  const loaded = part.progress === null ? {} : { '--jp-wg-loaded': `${part.progress * 100}%` };
  const loading = part.progress === null ? '' : ' jp-mod-loading';
  return (
    <div
      className={`jp-wg-piece jp-mod-${part.look}${loading}`}
      style={{ flexGrow: part.share, ...loaded } as React.CSSProperties}
      title={`${part.label} · ${amount(part.bytes)}${part.detail ? ` · ${part.detail}` : ''}`}
    />
  );
}

/** How far something is, from 0 to 1. */
export function Progress({ part, label }: { part: number; label: string }) {
  return <progress className="jp-wg-progress" value={part} max={1} aria-label={label} />;
}
