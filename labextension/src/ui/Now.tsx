import React from 'react';
import type { Desk } from '../desk';
import { clock, type Trans } from '../format';
import type { Room } from '../room';
import { bars, modelLines, queueLines, type ModelLine, type QueueLine } from '../view';
import { DeviceBar, Progress } from './Bar';
import { Charts } from './Charts';
import { useNow } from './hooks';

const SHOWN_NEWS = 12;

/** What everybody sees: the GPUs, the queue, the models, what happened; an instructor also sees what
 * does not work. */
export function Now({ desk, room }: { desk: Desk; room: Room }) {
  const { trans } = desk;
  const now = useNow();
  return (
    <>
      {room.me.admin && <Problems room={room} trans={trans} />}
      {bars(room, now, trans).map(bar => (
        <DeviceBar key={bar.device} bar={bar} />
      ))}
      <Queue lines={queueLines(room, desk.isMine, now, trans)} paused={room.paused} trans={trans} />
      <Models lines={modelLines(room, now, trans)} trans={trans} />
      <Charts desk={desk} room={room} now={now} />
      <NewsList room={room} trans={trans} />
    </>
  );
}

function Problems({ room, trans }: { room: Room; trans: Trans }) {
  if (room.problems.length === 0) {
    return null;
  }
  return (
    <section className="jp-wg-problems" role="status">
      <h3>{trans.__('Problems')}</h3>
      <ul>
        {room.problems.map(problem => (
          <li key={problem} className="jp-wg-note jp-mod-warn">
            {problem}
          </li>
        ))}
      </ul>
    </section>
  );
}

interface QueueProps {
  lines: QueueLine[];
  paused: string;
  trans: Trans;
  /** What can be done with a job, if anything. */
  tools?: (line: QueueLine) => React.ReactNode;
}

/** Who is served and who waits. */
export function Queue({ lines, paused, trans, tools }: QueueProps) {
  return (
    <section className="jp-wg-queue">
      <h3>{trans.__('Queue')}</h3>
      {paused && <p className="jp-wg-note jp-mod-warn">{trans.__('Paused: %1', paused)}</p>}
      {lines.length === 0 && <p className="jp-wg-quiet">{trans.__('Nobody waits.')}</p>}
      <ol>
        {lines.map(line => (
          <li
            key={line.id}
            className={line.mine ? 'jp-mod-mine' : ''}
            data-state={line.running ? 'running' : 'queued'}
          >
            <div className="jp-wg-row">
              {line.place > 0 && <span className="jp-wg-place">{line.place}</span>}
              <span className="jp-wg-label">
                {line.who}
                {line.mine && <span className="jp-wg-you">{trans.__('you')}</span>}
                <span className="jp-wg-detail">{line.model}</span>
              </span>
              <span className="jp-wg-number">{line.words}</span>
              {tools?.(line)}
            </div>
            {line.progress !== null && <Progress part={line.progress} label={line.words} />}
            {line.reason && <p className="jp-wg-detail">{line.reason}</p>}
          </li>
        ))}
      </ol>
    </section>
  );
}

function Models({ lines, trans }: { lines: ModelLine[]; trans: Trans }) {
  return (
    <section className="jp-wg-models">
      <h3>{trans.__('Models')}</h3>
      <ul>
        {lines.map(line => (
          <ModelRow key={line.id} line={line} />
        ))}
      </ul>
    </section>
  );
}

/** One model with its state; `children` are its tools. */
export function ModelRow({ line, children }: React.PropsWithChildren<{ line: ModelLine }>) {
  const off = line.model.enabled ? '' : ' jp-mod-off';
  return (
    <li
      className={`jp-wg-model${off}`}
      data-model={line.id}
      data-state={line.state}
      data-placement={line.model.placement}
    >
      <div className="jp-wg-row">
        <span className={`jp-wg-swatch jp-mod-${line.look} jp-mod-is-${line.state}`} />
        <span className="jp-wg-label">
          {line.title}
          <span className="jp-wg-detail">{line.words}</span>
        </span>
      </div>
      {line.progress !== null && <Progress part={line.progress} label={line.words} />}
      {children}
    </li>
  );
}

function NewsList({ room, trans }: { room: Room; trans: Trans }) {
  return (
    <section className="jp-wg-news">
      <h3>{trans.__('What happened')}</h3>
      {room.news.length === 0 && <p className="jp-wg-quiet">{trans.__('Nothing yet.')}</p>}
      <ul>
        {room.news.slice(0, SHOWN_NEWS).map(news => (
          <li key={`${news.at} ${news.text}`}>
            <time>{clock(news.at)}</time> {news.text}
          </li>
        ))}
      </ul>
    </section>
  );
}
