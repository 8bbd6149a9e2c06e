/**
 * What happens on the server, kept up to date from its event stream. Pure: no clock, no network.
 */

import type {
  Device,
  HelpCall,
  Job,
  Me,
  Message,
  Model,
  News,
  Reservation,
  Slot,
  Status,
  StreamEvent
} from './types';

/** What was told with times in it, and when that was (seconds since 1970). */
export type Told<T> = T & { told_at: number };

export interface Room {
  me: Me;
  version: string;
  devices: Device[];
  models: Model[];
  waiting: Told<Job>[];
  running: Job[];
  reservations: Told<Reservation>[];
  paused: string;
  /** What does not work at present, models.toml included; the instructor is shown it. */
  problems: string[];
  /** The latest first. */
  news: News[];
  /** What the instructor tells everybody. */
  message: Message | null;
  /** Raised hands: an instructor sees all, others their own. */
  help: HelpCall[];
}

const KEPT_NEWS = 50;

/** The room after an event; `null` before the first snapshot, which every stream begins with. */
export function after(room: Room | null, event: StreamEvent, at: number): Room | null {
  if (event.event === 'snapshot') {
    return fromSnapshot(event.status, event.models, at);
  }
  return room && applied(room, event, at);
}

function fromSnapshot(status: Status, models: Model[], at: number): Room {
  const { me, version, devices, running, paused, problems } = status;
  return {
    me,
    version,
    devices: devices.map(each => dated(each, at)),
    models: models.map(each => dated(each, at)),
    waiting: status.waiting.map(job => ({ ...job, told_at: at })),
    running,
    reservations: status.reservations.map(each => ({ ...each, told_at: at })),
    paused,
    problems,
    news: status.news ?? [],
    message: status.message ?? null,
    help: status.help ?? []
  };
}

function applied(room: Room, event: StreamEvent, at: number): Room {
  switch (event.event) {
    case 'job':
      return withJob(room, event.job, at);
    case 'slot':
      return withSlot(room, { ...event.slot, told_at: at });
    case 'device':
      return { ...room, devices: replaced(room.devices, dated(event.device, at)) };
    case 'models':
      return {
        ...room,
        models: event.models.map(each => dated(each, at)),
        problems: event.problems
      };
    case 'reservation':
      return withReservation(room, { ...event.reservation, told_at: at }, event.ended !== '');
    case 'policy':
      return { ...room, paused: event.paused };
    case 'news':
      return { ...room, news: [event.news, ...room.news].slice(0, KEPT_NEWS) };
    case 'message':
      return { ...room, message: event.message };
    case 'help':
      return withHelp(room, event.call, event.raised);
    default:
      return room;
  }
}

/** A GPU or a model, each of its slots with when it was told. */
function dated<T extends { slots: Slot[] }>(one: T, at: number): T {
  return { ...one, slots: one.slots.map(slot => ({ ...slot, told_at: at })) };
}

function withJob(room: Room, job: Job, at: number): Room {
  const others = <T extends Job>(jobs: T[]) => jobs.filter(each => each.id !== job.id);
  const waiting = others(room.waiting);
  if (job.state === 'queued') {
    waiting.push({ ...job, told_at: at });
    waiting.sort((a, b) => a.position - b.position);
    return { ...room, waiting, running: others(room.running) };
  }
  const running = job.state === 'running' ? replaced(room.running, job) : others(room.running);
  return { ...room, waiting, running };
}

function withSlot(room: Room, slot: Slot): Room {
  const slots = (before: Slot[]) => {
    const rest = before.filter(each => each.device !== slot.device || each.model !== slot.model);
    return slot.state === 'absent' ? rest : [...rest, slot];
  };
  return {
    ...room,
    devices: room.devices.map(device =>
      device.id === slot.device ? { ...device, slots: slots(device.slots) } : device
    ),
    models: room.models.map(model =>
      model.id === slot.model ? { ...model, slots: slots(model.slots) } : model
    )
  };
}

function withReservation(room: Room, reservation: Told<Reservation>, ended: boolean): Room {
  const reservations = ended
    ? room.reservations.filter(each => each.id !== reservation.id)
    : replaced(room.reservations, reservation);
  return { ...room, reservations };
}

function withHelp(room: Room, call: HelpCall, raised: boolean): Room {
  const help = room.help.filter(each => each.participant !== call.participant);
  return { ...room, help: raised ? [...help, call] : help };
}

function replaced<T extends { id: string }>(all: T[], one: T): T[] {
  return all.some(each => each.id === one.id)
    ? all.map(each => (each.id === one.id ? one : each))
    : [...all, one];
}
