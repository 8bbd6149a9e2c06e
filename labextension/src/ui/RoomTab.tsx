import React, { useEffect, useState } from 'react';
import {
  cancelJob,
  clearOrOpen,
  endReservation,
  helped,
  pauseOrResume,
  setRule,
  takeBack,
  tellAll
} from '../actions';
import { address } from '../api';
import type { Desk } from '../desk';
import { clock } from '../format';
import type { Room } from '../room';
import type { Policy } from '../types';
import { queueLines, reservedWords } from '../view';
import { Do, useDoing } from './Doing';
import { useAnswer, useNow } from './hooks';
import { Queue } from './Now';

/** The room as a whole: help, message, queue, GPUs, rules, the end of the session. */
export function RoomTab({ desk, room }: { desk: Desk; room: Room }) {
  const { trans } = desk;
  const now = useNow();
  const jobs = [...room.running, ...room.waiting];
  return (
    <>
      <Help desk={desk} room={room} />
      <div className="jp-wg-tools">
        <Do action={pauseOrResume(room.paused, trans)} />
        <Do action={room.message ? takeBack(trans) : tellAll(trans)} />
      </div>
      <Queue
        lines={queueLines(room, desk.isMine, now, trans)}
        paused={room.paused}
        trans={trans}
        tools={line => {
          const job = jobs.find(each => each.id === line.id);
          const reservation = room.reservations.find(each => each.id === line.id);
          return job ? (
            <Do action={cancelJob(job, trans)} sign="✕" />
          ) : (
            reservation && <Do action={endReservation(reservation, trans)} sign="✕" />
          );
        }}
      />
      <Devices desk={desk} room={room} />
      <Rules desk={desk} />
      <section>
        <h3>{trans.__('End of the session')}</h3>
        <a className="jp-wg-do" href={address(desk.settings, 'export')} download>
          {trans.__('Download all pictures (zip)')}
        </a>
        <p className="jp-wg-detail">
          {trans.__('A folder for each participant, with prompts and seeds.')}
        </p>
      </section>
    </>
  );
}

function Help({ desk, room }: { desk: Desk; room: Room }) {
  const { trans } = desk;
  if (room.help.length === 0) {
    return null;
  }
  return (
    <section className="jp-wg-help">
      <h3>{trans.__('Asking for help')}</h3>
      <ul>
        {room.help.map(call => (
          <li key={call.participant} className="jp-wg-row">
            <span className="jp-wg-label">
              {call.name}
              <span className="jp-wg-detail">
                {[call.text, call.notebook, trans.__('since %1', clock(call.at))]
                  .filter(Boolean)
                  .join(' · ')}
              </span>
            </span>
            <Do action={helped(call, trans)} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Devices({ desk, room }: { desk: Desk; room: Room }) {
  const { trans } = desk;
  const granted = room.reservations.filter(each => each.state === 'granted');
  return (
    <section>
      <h3>{trans.__('GPUs')}</h3>
      <ul>
        {room.devices.map(device => {
          const cleared = room.reservations.find(
            each => each.whole && each.device === device.id && each.expires_in_s === null
          );
          return (
            <li key={device.id} className="jp-wg-row">
              <span className="jp-wg-label">
                {device.id}
                {cleared && (
                  <span className="jp-wg-detail">
                    {cleared.state === 'granted'
                      ? trans.__('cleared for training')
                      : trans.__('is being cleared: %1', cleared.reason)}
                  </span>
                )}
              </span>
              <Do action={clearOrOpen(device, cleared, trans)} />
            </li>
          );
        })}
        {granted
          .filter(each => each.expires_in_s !== null)
          .map(each => (
            <li key={each.id} className="jp-wg-row">
              <span className="jp-wg-label">
                {trans.__('reserved by %1', each.participant)}
                <span className="jp-wg-detail">{reservedWords(each, trans)}</span>
              </span>
              <Do action={endReservation(each, trans)} />
            </li>
          ))}
      </ul>
    </section>
  );
}

function Rules({ desk }: { desk: Desk }) {
  const { trans } = desk;
  const { round } = useDoing();
  const { answer } = useAnswer<Policy>(desk, 'policy', round);
  if (!answer) {
    return null;
  }
  const rules: [keyof Policy & string, string, string][] = [
    [
      'queue_limit',
      trans.__('Waiting jobs each'),
      trans.__('How many jobs of one participant may wait; further ones are refused.')
    ],
    [
      'patience_s',
      trans.__('Patience (s)'),
      trans.__('How long a job may be overtaken by those whose model is ready.')
    ],
    [
      'min_residency_s',
      trans.__('Loaded at least (s)'),
      trans.__('How long a model that was just loaded is safe from others.')
    ]
  ];
  return (
    <section>
      <h3>{trans.__('Rules for all')}</h3>
      {rules.map(([name, label, about]) => (
        <Rule
          key={name}
          name={name}
          label={label}
          about={about}
          value={Number(answer[name])}
          desk={desk}
        />
      ))}
    </section>
  );
}

interface RuleProps {
  name: string;
  label: string;
  about: string;
  value: number;
  desk: Desk;
}

function Rule({ name, label, about, value, desk }: RuleProps) {
  const { act } = useDoing();
  const [text, setText] = useState(String(value));
  useEffect(() => setText(String(value)), [value]);
  const changed = text.trim() !== '' && Number(text) !== value;
  return (
    <form
      className="jp-wg-row jp-wg-rule"
      onSubmit={event => {
        event.preventDefault();
        void act(setRule(name, label, Number(text), desk.trans));
      }}
    >
      <label>
        <span className="jp-wg-label" title={about}>
          {label}
        </span>
        <input
          type="number"
          min={0}
          step="any"
          className="jp-mod-styled"
          name={name}
          value={text}
          onChange={event => setText(event.currentTarget.value)}
        />
      </label>
      <button type="submit" className="jp-wg-do" disabled={!changed}>
        {desk.trans.__('Apply')}
      </button>
    </form>
  );
}
