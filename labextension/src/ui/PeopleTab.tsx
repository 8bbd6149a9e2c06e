import React from 'react';
import { restartKernel, setLimit, setPriority } from '../actions';
import { address } from '../api';
import type { Desk } from '../desk';
import { amount, span, type Trans } from '../format';
import type { Room } from '../room';
import type { Kernel, Participant, Priority } from '../types';
import { Do, useDoing } from './Doing';
import { useAnswer } from './hooks';

const PRIORITIES: Priority[] = ['urgent', 'high', 'normal', 'low', 'batch'];
const EVERY_S = 5;

/** Everybody in the room: what they use, and their rules. */
export function PeopleTab({ desk, room }: { desk: Desk; room: Room }) {
  const { trans } = desk;
  const { round } = useDoing();
  const occasion = `${round} ${room.waiting.length} ${room.running.length} ${room.help.length}`;
  const people = useAnswer<{ participants: Participant[] }>(
    desk,
    'participants',
    occasion,
    EVERY_S
  );
  const kernels = useAnswer<{ kernels: Kernel[] }>(desk, 'kernels', occasion, EVERY_S);
  if (!people.answer) {
    return <p className="jp-wg-quiet">{people.problem || trans.__('Asking …')}</p>;
  }
  const all = people.answer.participants;
  return (
    <section className="jp-wg-people">
      {all.length === 0 && <p className="jp-wg-quiet">{trans.__('Nobody is here yet.')}</p>}
      <ul>
        {all.map(person => (
          <Person
            key={person.id}
            person={person}
            kernel={kernels.answer?.kernels.find(each => each.id === person.kernel)}
            desk={desk}
          />
        ))}
      </ul>
    </section>
  );
}

interface PersonProps {
  person: Participant;
  kernel: Kernel | undefined;
  desk: Desk;
}

function Person({ person, kernel, desk }: PersonProps) {
  const { trans } = desk;
  const pictures = `export?participant=${encodeURIComponent(person.id)}`;
  return (
    <li className="jp-wg-person" data-participant={person.id}>
      <div className="jp-wg-row">
        <span className="jp-wg-label">
          {person.name}
          {person.help !== null && <span className="jp-wg-you">{trans.__('asks for help')}</span>}
        </span>
        <span className="jp-wg-number">{trans.__('%1 of GPU', span(person.gpu_s))}</span>
      </div>
      <p className="jp-wg-detail">{usage(person, trans)}</p>
      <div className="jp-wg-tools">
        <PriorityChoice person={person} trans={trans} />
        <Do action={setLimit(person, trans)} />
        {person.jobs > 0 && (
          <a className="jp-wg-do" href={address(desk.settings, pictures)} download>
            {trans.__('Pictures (zip)')}
          </a>
        )}
        {person.kernel && <Do action={restartKernel(person, kernel, trans)} />}
      </div>
    </li>
  );
}

function usage(person: Participant, trans: Trans): string {
  const words = [
    person.running && trans.__('%1 running', person.running),
    trans.__('%1 of %2 waiting', person.waiting, person.queue_limit),
    person.models.length && trans.__('asks for %1', person.models.join(', ')),
    person.holds.length && trans.__('holds %1', person.holds.join(', ')),
    person.reserved_bytes && trans.__('%1 reserved', amount(person.reserved_bytes)),
    person.own_bytes && trans.__('own code: %1 of VRAM', amount(person.own_bytes))
  ];
  return words.filter(Boolean).join(' · ');
}

function PriorityChoice({ person, trans }: { person: Participant; trans: Trans }) {
  const { act } = useDoing();
  return (
    <select
      className="jp-wg-choice"
      aria-label={trans.__('Priority of %1', person.name)}
      value={person.priority}
      onChange={event => void act(setPriority(person, event.currentTarget.value, trans))}
    >
      {PRIORITIES.map(priority => (
        <option key={priority} value={priority}>
          {trans.__('priority: %1', priority)}
        </option>
      ))}
    </select>
  );
}
