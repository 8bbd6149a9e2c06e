/** What the panel shows of the room: bars with their legends, models, the queue. Pure. */

import { amount, amountOf, span, startsIn, type Trans } from './format';
import type { Room, Told } from './room';
import type { Device, Holder, Job, Model, ModelState, Reservation, Slot } from './types';

/** How a part of a bar is drawn; models have a colour each. */
export type Look =
  | `model-${number}`
  | 'shared'
  | 'working'
  | 'reservation'
  | 'notebook'
  | 'foreign'
  | 'other'
  | 'kept'
  | 'free';

/** A part of a GPU's memory: a piece of the bar, and a line of the legend. */
export interface Part {
  key: string;
  look: Look;
  label: string;
  detail: string;
  bytes: number;
  /** Of the bar's width, from 0 to 1. */
  share: number;
  /** How far a load is, from 0 to 1. */
  progress: number | null;
}

export interface Bar {
  device: string;
  title: string;
  used: string;
  note: string;
  parts: Part[];
}

export const MODEL_LOOKS = 6;
/** The placement that needs no words: the server's name for it. */
const EVERYTHING = 'everything on the GPU';
const BEST_FIRST: SlotState[] = ['ready', 'loading', 'leaving', 'failed'];
type SlotState = Slot['state'];

/** One bar for each GPU. `now` in seconds since 1970. */
export function bars(room: Room, now: number, trans: Trans): Bar[] {
  return room.devices.map(device => {
    const order = (holder: Holder) => room.models.findIndex(model => model.id === holder.name);
    const parts = device.holders
      .filter(holder => holder.bytes > 0)
      .sort((a, b) => order(a) - order(b))
      .map((holder, i) => partOf(holder, i, device, room, now, trans))
      .sort((a, b) => rank(a.look) - rank(b.look));
    parts.push({
      key: 'free',
      look: 'free',
      label: trans.__('free'),
      detail: '',
      bytes: Math.max(0, device.free_bytes),
      share: 0,
      progress: null
    });
    const whole = Math.max(
      device.total_bytes,
      parts.reduce((sum, part) => sum + part.bytes, 0)
    );
    return {
      device: device.id,
      title: device.name === device.id ? device.id : `${device.id} · ${device.name}`,
      used: device.total_bytes
        ? amountOf(device.total_bytes - device.free_bytes, device.total_bytes)
        : '', // nobody knows before its worker stands ready
      note: deviceNote(device, room, trans),
      parts: parts.map(part => ({ ...part, share: whole ? part.bytes / whole : 0 }))
    };
  });
}

function deviceNote(device: Device, room: Room, trans: Trans): string {
  const { reason } = device;
  if (device.state === 'starting') {
    return reason ? trans.__('being started again (%1)', reason) : trans.__('starting …');
  }
  if (device.state === 'lost') {
    const again = device.retry_s ? trans.__('tried again every %1', span(device.retry_s)) : '';
    const lost = trans.__('taken out: %1', reason || trans.__('look at the log of its worker'));
    return [lost, again].filter(Boolean).join('; ');
  }
  const owner = room.reservations.find(
    each => each.whole && each.state === 'granted' && each.device === device.id
  );
  return owner ? trans.__('taken as a whole by %1', owner.participant) : '';
}

function partOf(
  holder: Holder,
  i: number,
  device: Device,
  room: Room,
  now: number,
  trans: Trans
): Part {
  const part = {
    key: `${holder.kind}-${holder.name}-${i}`,
    bytes: holder.bytes,
    share: 0,
    detail: '',
    progress: null
  };
  switch (holder.kind) {
    case 'weights': {
      const index = room.models.findIndex(model => model.id === holder.name);
      const slot = device.slots.find(each => each.model === holder.name);
      if (index < 0 || !slot) {
        return { ...part, look: 'other', label: holder.name };
      }
      return {
        ...part,
        look: lookOf(index),
        label: room.models[index]?.title ?? holder.name,
        detail: slotWords(slot, now, trans),
        progress: progressOf(slot)
      };
    }
    case 'freeing':
      return { ...part, look: 'other', label: trans.__('%1, leaving', holder.name) };
    case 'shared':
      return { ...part, look: 'shared', label: trans.__('shared parts'), detail: holder.name };
    case 'working':
      return { ...part, look: 'working', label: trans.__('drawing for %1', holder.name) };
    case 'reservation':
      return { ...part, look: 'reservation', label: trans.__('reserved by %1', holder.name) };
    case 'notebook':
      return { ...part, look: 'notebook', label: trans.__("%1's own code", holder.name) };
    case 'foreign':
      return { ...part, look: 'foreign', label: holder.name };
    case 'kept_free':
      return { ...part, look: 'kept', label: trans.__('stays free beside %1', holder.name) };
    case 'cache':
      return { ...part, look: 'other', label: trans.__("the worker's own") };
    case 'margin':
      return { ...part, look: 'other', label: trans.__('safety margin') };
    default:
      return { ...part, look: 'other', label: `${holder.kind} ${holder.name}` };
  }
}

function lookOf(index: number): Look {
  return `model-${index % MODEL_LOOKS}`;
}

function rank(look: Look): number {
  const order = [
    'shared',
    'working',
    'reservation',
    'notebook',
    'foreign',
    'other',
    'kept',
    'free'
  ];
  return order.indexOf(look);
}

function progressOf(slot: Slot): number | null {
  return slot.state === 'loading' && slot.total_bytes > 0
    ? Math.min(1, slot.done_bytes / slot.total_bytes)
    : null;
}

function stepWords(job: Job, trans: Trans): string {
  return trans.__('step %1 of %2', job.step, job.steps);
}

/** How far a load is, how fast it goes, and how long it still takes at that speed. */
function loadWords(slot: Slot, trans: Trans): string {
  const { done_bytes, total_bytes, bytes_per_s = 0 } = slot;
  if (!total_bytes) {
    return trans.__('loading');
  }
  const far = trans.__('loading, %1', amountOf(done_bytes, total_bytes));
  if (bytes_per_s <= 0) {
    return far;
  }
  const left = span(Math.max(0, total_bytes - done_bytes) / bytes_per_s);
  return [far, trans.__('%1/s', amount(bytes_per_s)), trans.__('%1 left', left)].join(', ');
}

/** What a slot does, in words. */
export function slotWords(slot: Slot, now: number, trans: Trans): string {
  switch (slot.state) {
    case 'loading':
      return loadWords(slot, trans);
    case 'leaving':
      return trans.__('leaving');
    case 'failed':
      return slot.error?.message ?? trans.__('could not be loaded; pick another model');
    case 'absent':
      return '';
    case 'ready': {
      if (slot.running_jobs > 0) {
        return [trans.__('drawing'), ...extras(slot, trans)].join(' · ');
      }
      const kept = slot.pinned
        ? trans.__('pinned')
        : slot.holds
          ? trans._n('held by %1 notebook', 'held by %1 notebooks', slot.holds, slot.holds)
          : '';
      const idle_s = slot.idle_s + passed(slot.told_at ?? now, now);
      const idle = idle_s >= 60 ? trans.__('idle for %1', span(idle_s)) : '';
      const state = [trans.__('ready'), kept, idle].filter(Boolean).join(', ');
      return [state, ...extras(slot, trans)].join(' · ');
    }
  }
}

/** What is special about a model there: where its weights are, and what it has beside them. */
function extras(slot: Slot, trans: Trans): string[] {
  const found: string[] = [];
  if (slot.placement && slot.placement !== EVERYTHING) {
    found.push(slot.placement);
  }
  if (slot.compiled) {
    found.push(trans.__('compiled'));
  }
  if (slot.loras?.length) {
    found.push(trans.__('with %1', slot.loras.join(', ')));
  }
  return found;
}

/** A model of the catalogue as the list shows it. */
export interface ModelLine {
  id: string;
  title: string;
  look: Look;
  state: ModelState;
  words: string;
  bytes: number;
  progress: number | null;
  model: Model;
}

/** All models, as the catalogue orders them. `now` in seconds since 1970. */
export function modelLines(room: Room, now: number, trans: Trans): ModelLine[] {
  return room.models.map((model, index) => {
    const slot = bestSlot(model);
    const downloading = !slot && model.state === 'downloading';
    const state = slot?.state ?? (downloading || model.problem ? model.state : 'absent');
    return {
      id: model.id,
      title: model.title,
      look: lookOf(index),
      state,
      words: modelWords(model, slot, now, trans),
      bytes: slot?.bytes ?? model.bytes,
      progress:
        downloading && model.total_bytes
          ? model.done_bytes / model.total_bytes
          : slot
            ? progressOf(slot)
            : null,
      model
    };
  });
}

function bestSlot(model: Model): Slot | undefined {
  return BEST_FIRST.map(state => model.slots.find(slot => slot.state === state)).find(Boolean);
}

function modelWords(model: Model, slot: Slot | undefined, now: number, trans: Trans): string {
  if (model.problem) {
    return model.problem;
  }
  if (!model.enabled) {
    return trans.__('not offered: %1', model.reason);
  }
  if (slot) {
    return slotWords(slot, now, trans);
  }
  if (model.state === 'downloading') {
    return trans.__('downloading, %1', amountOf(model.done_bytes, model.total_bytes));
  }
  return trans.__('not loaded (%1)', amount(model.bytes));
}

/** A job that runs or waits, or a reservation that waits. */
export interface QueueLine {
  id: string;
  who: string;
  /** The model; of a reservation, how much it is for and where. */
  model: string;
  words: string;
  /** Why it waits, or how it went on after its GPU had run out of memory. */
  reason: string;
  mine: boolean;
  running: boolean;
  /** Among those who wait, from 1; 0 for who is served. */
  place: number;
  progress: number | null;
}

/** Says whether a job or a reservation is of the one who looks. */
export type IsMine = (asked: Pick<Job, 'id' | 'mine' | 'kernel'>) => boolean;

/** Who is served, then who waits, in their order. `now` in seconds since 1970. */
export function queueLines(room: Room, isMine: IsMine, now: number, trans: Trans): QueueLine[] {
  const title = (id: string) => room.models.find(model => model.id === id)?.title ?? id;
  const line = (job: Job) => ({
    id: job.id,
    who: job.participant,
    model: title(job.model),
    reason: job.waiting_for === 'pause' ? '' : job.reason, // told once, above all of them
    mine: isMine(job)
  });
  const running = room.running.map(job => ({
    ...line(job),
    words: stepWords(job, trans),
    reason: job.went_on ?? '',
    running: true,
    place: 0,
    progress: job.steps ? job.step / job.steps : 0
  }));
  const waiting = room.waiting.map(job => ({
    ...line(job),
    words: waitWords(job, now, trans),
    running: false,
    place: job.position,
    progress: null
  }));
  const reserving = room.reservations
    .filter(each => each.state === 'waiting')
    .map(each => ({
      id: each.id,
      who: each.participant,
      model: trans.__('own code: %1', reservedWords(each, trans)),
      words: startsIn(waitLeft(each, now), trans),
      reason: each.reason,
      mine: isMine(each),
      running: false,
      place: each.position,
      progress: null
    }));
  // The place of a reservation is among the jobs: nothing behind it begins where it waits.
  return [...running, ...[...reserving, ...waiting].sort((a, b) => a.place - b.place)];
}

/** How much of which GPU: "8.0 GB of cuda:0", "a whole GPU". */
export function reservedWords(reservation: Reservation, trans: Trans): string {
  const { size_bytes, device } = reservation;
  if (size_bytes === null) {
    return device ? trans.__('all of %1', device) : trans.__('a whole GPU');
  }
  return device ? trans.__('%1 of %2', amount(size_bytes), device) : amount(size_bytes);
}

function waitWords(job: Told<Job>, now: number, trans: Trans): string {
  switch (job.waiting_for) {
    case 'pause':
      return trans.__('paused');
    case 'download':
      return trans.__('model downloads');
    case 'device':
      return trans.__('GPU starts');
    default:
      return startsIn(waitLeft(job, now), trans);
  }
}

function waitLeft(asked: Told<Job | Reservation>, now: number): number | null {
  return asked.expected_wait_s === null
    ? null
    : Math.max(0, asked.expected_wait_s - passed(asked.told_at, now));
}

/** The seconds since something was told; clocks may be set back. */
function passed(told_at: number, now: number): number {
  return Math.max(0, now - told_at);
}

/** One line for the status bar: "GPU 61/80 GB · 3 waiting · you: in 20 s". */
export function statusLine(room: Room, isMine: IsMine, now: number, trans: Trans): string {
  const total = room.devices.reduce((sum, device) => sum + device.total_bytes, 0);
  const free = room.devices.reduce((sum, device) => sum + Math.max(0, device.free_bytes), 0);
  const words = [
    total ? trans.__('GPU %1', amountOf(total - free, total)) : trans.__('GPU starting')
  ];
  if (room.paused) {
    words.push(trans.__('paused'));
  }
  if (room.waiting.length) {
    words.push(trans.__('%1 waiting', room.waiting.length));
  }
  const running = room.running.find(isMine);
  const next = room.waiting.find(isMine);
  if (running) {
    words.push(trans.__('you: %1', stepWords(running, trans)));
  } else if (next) {
    const place = next.position === 1 ? trans.__('next') : trans.__('place %1', next.position);
    words.push(trans.__('you: %1, %2', place, waitWords(next, now, trans)));
  }
  return words.join(' · ');
}
