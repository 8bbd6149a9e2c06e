/** Small things of the server's API, for tests. */

import type { Trans } from '../src/format';
import { after, type Room } from '../src/room';
import type {
  Device,
  Job,
  Model,
  Plan,
  Reservation,
  Rung,
  Slot,
  Status,
  StreamEvent
} from '../src/types';

export const trans: Trans = {
  __: (text, ...args) => text.replace(/%(\d)/g, (_, n) => String(args[Number(n) - 1])),
  _n: (one, many, n, ...args) => trans.__(n === 1 ? one : many, ...args)
};

export const slot = (more: Partial<Slot> = {}): Slot => ({
  device: 'cuda:0',
  model: 'sd',
  state: 'ready',
  bytes: 20e9,
  done_bytes: 0,
  total_bytes: 0,
  running_jobs: 0,
  holds: 0,
  pinned: false,
  idle_s: 0,
  error: null,
  placement: '',
  ...more
});

export const device = (more: Partial<Device> = {}): Device => ({
  id: 'cuda:0',
  name: 'NVIDIA H200',
  state: 'ready',
  total_bytes: 80e9,
  free_bytes: 30e9,
  holders: [],
  slots: [],
  ...more
});

export const model = (id: string, more: Partial<Model> = {}): Model => ({
  id,
  title: id.toUpperCase(),
  description: '',
  enabled: true,
  reason: '',
  state: 'absent',
  problem: '',
  bytes: 20e9,
  done_bytes: 0,
  total_bytes: 0,
  pinned: false,
  keep_warm_s: 0,
  placement: 'auto',
  slots: [],
  ...more
});

export const job = (id: string, more: Partial<Job> = {}): Job => ({
  id,
  state: 'queued',
  model: 'sd',
  participant: 'Ada',
  kernel: null,
  mine: false,
  position: 1,
  expected_wait_s: 20,
  waiting_for: '',
  step: 0,
  steps: 20,
  device: null,
  submitted_at: 0,
  started_at: null,
  ended_at: null,
  reason: '',
  ...more
});

export const rung = (more: Partial<Rung> = {}): Rung => ({
  rung: 'resident',
  words: 'everything on the GPU',
  needed_bytes: 30e9,
  elsewhere_bytes: 0,
  expected_s: 4,
  basis: 'measured',
  compiled: false,
  chosen: true,
  why: 'chosen: the fastest that fits',
  ...more
});

export const plan = (more: Partial<Plan> = {}): Plan => ({
  model: 'sd',
  device: 'cuda:0',
  room_bytes: 60e9,
  total_bytes: 80e9,
  placement: '',
  blocks: 'not compiled',
  rungs: [
    rung(),
    rung({
      rung: 'staged-encoders',
      words: 'text encoders staged',
      needed_bytes: 20e9,
      expected_s: 5,
      basis: 'reckoned',
      chosen: false,
      why: 'fits, and is no faster'
    })
  ],
  warning: '',
  notes: [],
  ...more
});

/** One that was granted. */
export const reservation = (id: string, more: Partial<Reservation> = {}): Reservation => ({
  id,
  participant: 'Ada',
  mine: false,
  device: 'cuda:0',
  size_bytes: 8e9,
  whole: false,
  state: 'granted',
  position: 0,
  expected_wait_s: null,
  expires_in_s: 60,
  reason: '',
  kernel: null,
  ...more
});

export const snapshot = (
  more: Partial<Status> = {},
  models: Model[] = [model('sd'), model('turbo')]
): StreamEvent => ({
  event: 'snapshot',
  status: {
    version: '1',
    started_at: 0,
    me: { participant: 'me', name: 'Me', kernel: null, admin: false },
    devices: [device()],
    waiting: [],
    running: [],
    problems: [],
    reservations: [],
    paused: '',
    ...more
  },
  models,
  mine: []
});

export const room = (more: Partial<Status> = {}, models?: Model[]): Room =>
  after(null, snapshot(more, models), 100) as Room;
