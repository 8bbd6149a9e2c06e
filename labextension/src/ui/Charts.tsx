import React from 'react';
import { line, SPAN_S, top, type Sample } from '../chart';
import type { Desk } from '../desk';
import { amount } from '../format';
import type { Room } from '../room';
import type { HistoryPoint } from '../types';
import { useHistory } from './hooks';

const WIDTH = 240;
const HEIGHT = 36;

/** The last half hour: memory, the queue, pictures a minute. */
export function Charts({ desk, room, now }: { desk: Desk; room: Room; now: number }) {
  const { trans } = desk;
  const history = useHistory(desk);
  if (!history || history.points.length < 2) {
    return null;
  }
  const { points, every_s } = history;
  // The server's clock may differ from this machine's.
  const to = Math.max(history.now, points.at(-1)?.at ?? now);
  const range = { from: to - SPAN_S, to, gap_s: 3 * every_s };
  const of = (value: (point: HistoryPoint) => number): Sample[] =>
    points.map(point => ({ at: point.at, value: value(point) }));
  const waiting = of(point => point.waiting);
  const drawn = of(point => point.images_per_minute);
  return (
    <section className="jp-wg-history">
      <h3>{trans.__('Last 30 minutes')}</h3>
      {room.devices.map(device => (
        <Chart
          key={device.id}
          name={trans.__('in use on %1', device.id)}
          samples={of(point => point.used_bytes[device.id] ?? 0)}
          most={device.total_bytes}
          words={amount}
          {...range}
        />
      ))}
      <Chart
        name={trans.__('waiting jobs')}
        samples={waiting}
        most={top(waiting, 5)}
        words={String}
        {...range}
      />
      <Chart
        name={trans.__('pictures a minute')}
        samples={drawn}
        most={top(drawn, 10)}
        words={value => value.toFixed(0)}
        {...range}
      />
    </section>
  );
}

interface ChartProps {
  name: string;
  samples: Sample[];
  most: number;
  words: (value: number) => string;
  from: number;
  to: number;
  gap_s: number;
}

function Chart({ name, samples, most, words, from, to, gap_s }: ChartProps) {
  const last = samples.at(-1)?.value ?? 0;
  const box = { width: WIDTH, height: HEIGHT, most, from, to, gap_s };
  return (
    <figure className="jp-wg-chart">
      <figcaption className="jp-wg-row">
        <span className="jp-wg-label">{name}</span>
        <span className="jp-wg-number">{words(last)}</span>
      </figcaption>
      <svg
        viewBox={`0 -2 ${WIDTH} ${HEIGHT + 4}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${name}: ${words(last)}`}
      >
        <title>{`0 – ${words(most)}`}</title>
        <path d={line(samples, box)} />
      </svg>
    </figure>
  );
}
