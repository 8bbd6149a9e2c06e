/**
 * What the server's REST API says, as far as the panel reads it.
 *
 * Bytes are integers; times ending in `_s` are seconds, those ending in `_at` seconds since 1970.
 */

export type SlotState = 'absent' | 'loading' | 'ready' | 'leaving' | 'failed';
export type JobState = 'queued' | 'running' | 'done' | 'failed' | 'cancelled';
export type ModelState = SlotState | 'downloading' | 'unavailable';
export type Priority = 'urgent' | 'high' | 'normal' | 'low' | 'batch';

export interface ErrorReport {
  kind: string;
  message: string;
}

export interface Holder {
  kind: string;
  name: string;
  bytes: number;
}

export interface Slot {
  device: string;
  model: string;
  state: SlotState;
  bytes: number;
  done_bytes: number;
  total_bytes: number;
  running_jobs: number;
  holds: number;
  pinned: boolean;
  idle_s: number;
  error: ErrorReport | null;
  placement?: string;
  compiled?: boolean;
  /** Those that are ready for its next jobs. */
  loras?: string[];
  /** How fast its load goes; 0: nobody knows. */
  bytes_per_s?: number;
  /** When the panel was told (seconds since 1970): an idle slot grows older without news. */
  told_at?: number;
}

export interface Device {
  id: string;
  name: string;
  state: string;
  total_bytes: number;
  free_bytes: number;
  holders: Holder[];
  slots: Slot[];
  /** Why it does not work. */
  reason?: string;
  /** How often one that is lost is tried again; null: never. */
  retry_s?: number | null;
}

export interface Job {
  id: string;
  state: JobState;
  model: string;
  participant: string;
  kernel?: string | null;
  mine: boolean;
  position: number;
  expected_wait_s: number | null;
  waiting_for: string;
  step: number;
  steps: number;
  device: string | null;
  submitted_at: number;
  started_at: number | null;
  ended_at: number | null;
  params?: Record<string, string | number> | null;
  error?: ErrorReport | null;
  reason: string;
  /** How it went on after its GPU had run out of memory over it. */
  went_on?: string;
}

export interface Model {
  id: string;
  title: string;
  description: string;
  enabled: boolean;
  reason: string;
  state: ModelState;
  problem: string;
  bytes: number;
  done_bytes: number;
  total_bytes: number;
  pinned: boolean;
  keep_warm_s: number;
  placement: string;
  slots: Slot[];
}

export interface Reservation {
  id: string;
  participant: string;
  mine: boolean;
  device: string | null;
  size_bytes: number | null;
  whole: boolean;
  state: 'waiting' | 'granted' | 'ended';
  position: number;
  expected_wait_s: number | null;
  expires_in_s: number | null;
  reason: string;
  kernel?: string | null;
}

/** Something that happened, in the server's words. */
export interface News {
  at: number;
  kind: string;
  text: string;
  device: string;
  model: string;
}

/** What the instructor tells everybody. */
export interface Message {
  text: string;
  who: string;
  at: number;
}

/** A raised hand. */
export interface HelpCall {
  participant: string;
  name: string;
  notebook: string;
  text: string;
  at: number;
  mine: boolean;
}

/** The last half hour. */
export interface History {
  now: number;
  every_s: number;
  points: HistoryPoint[];
}

export interface HistoryPoint {
  at: number;
  waiting: number;
  running: number;
  images_per_minute: number;
  used_bytes: Record<string, number>;
  reserved_bytes: Record<string, number>;
}

export interface Me {
  participant: string;
  name: string;
  kernel: string | null;
  admin: boolean;
}

export interface Status {
  version: string;
  started_at: number;
  me: Me;
  devices: Device[];
  waiting: Job[];
  running: Job[];
  problems: string[];
  reservations: Reservation[];
  paused: string;
  news?: News[];
  message?: Message | null;
  help?: HelpCall[];
}

export type StreamEvent =
  | { event: 'snapshot'; status: Status; models: Model[]; mine: Job[] }
  | { event: 'job'; job: Job }
  | { event: 'slot'; slot: Slot; freed_bytes: number; why: string }
  | { event: 'device'; device: Device }
  | { event: 'models'; models: Model[]; problems: string[] }
  | { event: 'reservation'; reservation: Reservation; ended: string }
  | { event: 'policy'; paused: string; patience_s: number; queue_limit: number }
  | { event: 'news'; news: News }
  | { event: 'message'; message: Message | null }
  | { event: 'help'; call: HelpCall; raised: boolean };

/** The rules for the room (instructor). */
export interface Policy {
  patience_s: number;
  queue_limit: number;
  min_residency_s: number;
  paused: string;
}

/** Somebody in the room (instructor). */
export interface Participant {
  id: string;
  name: string;
  kernel: string | null;
  waiting: number;
  running: number;
  queue_limit: number;
  priority: Priority;
  jobs: number;
  gpu_s: number;
  models: string[];
  holds: string[];
  reserved_bytes: number;
  own_bytes: number;
  help: string | null;
}

/** A kernel, and what a restart of it would lose (instructor). */
export interface Kernel {
  id: string;
  name: string;
  notebook: string;
  state: string;
  restart_loses: string[];
}

export interface AuditEntry {
  at: number;
  who: string;
  action: string;
  subject: string;
  details: Record<string, string | number | boolean | null>;
}

/** One rung of the ladder on which a model may be placed. */
export interface Rung {
  rung: string;
  words: string;
  needed_bytes: number;
  /** What it takes of the other GPU. */
  elsewhere_bytes?: number;
  expected_s: number;
  /** What the seconds come from. */
  basis: 'measured' | 'reckoned' | 'guess' | '';
  /** Whether the seconds are those with compiled blocks. */
  compiled: boolean;
  chosen: boolean;
  why: string;
}

export interface Plan {
  model: string;
  device: string;
  room_bytes: number;
  total_bytes: number;
  placement: string;
  blocks: 'compiled' | 'not compiled yet' | 'not compiled';
  rungs: Rung[];
  warning: string;
  notes?: string[];
}
