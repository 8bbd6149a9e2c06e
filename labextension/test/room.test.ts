import { expect, test } from 'vitest';
import { after, type Room } from '../src/room';
import type { Job, StreamEvent } from '../src/types';
import { device, job, model, reservation, slot, snapshot } from './made';

const roomAfter = (...events: StreamEvent[]): Room => {
  const room = [snapshot(), ...events].reduce<Room | null>(
    (before, e) => after(before, e, 100),
    null
  );
  expect(room).not.toBeNull();
  return room as Room;
};
const told = (...jobs: Job[]): StreamEvent[] => jobs.map(each => ({ event: 'job', job: each }));

test('nothing is known before the first snapshot', () => {
  expect(after(null, { event: 'job', job: job('a') }, 0)).toBeNull();
});

test('jobs wait in the order of their positions, and a job that runs waits no more', () => {
  const queued = told(job('a', { position: 2 }), job('b', { position: 1 }));
  expect(roomAfter(...queued).waiting.map(each => each.id)).toEqual(['b', 'a']);
  const room = roomAfter(...queued, ...told(job('b', { state: 'running', position: 0 })));
  expect(room.waiting.map(each => each.id)).toEqual(['a']);
  expect(room.running.map(each => each.id)).toEqual(['b']);
});

test.each(['done', 'failed', 'cancelled'] as const)('a job that is %s is gone', state => {
  const room = roomAfter(...told(job('a'), job('a', { state: 'running' }), job('a', { state })));
  expect([...room.waiting, ...room.running]).toEqual([]);
});

test('a slot is kept with its GPU and its model, until it is absent', () => {
  const loading = slot({ state: 'loading', done_bytes: 1, total_bytes: 4 });
  const room = roomAfter({ event: 'slot', slot: loading, freed_bytes: 0, why: '' });
  expect(room.devices[0]?.slots).toEqual([{ ...loading, told_at: 100 }]);
  expect(room.models[0]?.slots).toEqual([{ ...loading, told_at: 100 }]);
  const gone = after(
    room,
    { event: 'slot', slot: slot({ state: 'absent' }), freed_bytes: 5, why: '' },
    101
  );
  expect(gone?.devices[0]?.slots).toEqual([]);
  expect(gone?.models[0]?.slots).toEqual([]);
});

test('an account replaces the one of the same GPU only', () => {
  const room = after(
    after(null, snapshot({ devices: [device(), device({ id: 'cuda:1' })] }), 0),
    { event: 'device', device: device({ id: 'cuda:1', free_bytes: 7 }) },
    1
  );
  expect(room?.devices.map(each => [each.id, each.free_bytes])).toEqual([
    ['cuda:0', 30e9],
    ['cuda:1', 7]
  ]);
});

test('what does not work comes with the models, and goes again', () => {
  const problems = (...told: string[]): StreamEvent => ({
    event: 'models',
    models: [model('sdxl')],
    problems: told
  });
  expect(roomAfter(problems('The disk is full.')).problems).toEqual(['The disk is full.']);
  expect(roomAfter(problems('The disk is full.'), problems()).problems).toEqual([]);
});

test('the latest news is first, and old news goes', () => {
  const news = Array.from({ length: 60 }, (_, i) => ({
    event: 'news' as const,
    news: { at: i, kind: 'notice', text: `news ${i}`, device: '', model: '' }
  }));
  const room = roomAfter(...news);
  expect(room.news[0]?.text).toBe('news 59');
  expect(room.news).toHaveLength(50);
});

test('a hand is up once, and down again', () => {
  const call = { participant: 'p', name: 'Ada', notebook: '', text: '', at: 1, mine: false };
  const up: StreamEvent = { event: 'help', call, raised: true };
  expect(roomAfter(up, up).help).toEqual([call]);
  expect(roomAfter(up, { event: 'help', call, raised: false }).help).toEqual([]);
});

test('a message stands until there is none', () => {
  const message = { text: 'Lunch', who: 'Ada', at: 1 };
  expect(roomAfter({ event: 'message', message }).message).toEqual(message);
  expect(
    roomAfter({ event: 'message', message }, { event: 'message', message: null }).message
  ).toBeNull();
});

test('a snapshot replaces all that was known', () => {
  const room = roomAfter(...told(job('a')), snapshot({ paused: 'lunch' }, [model('other')]));
  expect(room.waiting).toEqual([]);
  expect(room.paused).toBe('lunch');
  expect(room.models.map(each => each.id)).toEqual(['other']);
});

test('a reservation is there until it has ended', () => {
  const one = reservation('r');
  const granted: StreamEvent = { event: 'reservation', reservation: one, ended: '' };
  expect(roomAfter(granted, granted).reservations).toEqual([{ ...one, told_at: 100 }]);
  const ended: StreamEvent = { event: 'reservation', reservation: one, ended: 'given back' };
  expect(roomAfter(granted, ended).reservations).toEqual([]);
});
