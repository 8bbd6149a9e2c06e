import { describe, expect, test } from 'vitest';
import {
  cancelJob,
  clearOrOpen,
  modelActions,
  pauseOrResume,
  restartKernel,
  setLimit
} from '../src/actions';
import type { Participant } from '../src/types';
import { device, job, model, slot, trans } from './made';

const person: Participant = {
  id: 'client:Ada Lovelace/1',
  name: 'Ada',
  kernel: 'k',
  waiting: 0,
  running: 0,
  queue_limit: 3,
  priority: 'normal',
  jobs: 0,
  gpu_s: 0,
  models: [],
  holds: [],
  reserved_bytes: 0,
  own_bytes: 0,
  help: null
};
const labels = (more: Parameters<typeof model>[1]) =>
  modelActions(model('sd', more), trans).map(action => action.label);

describe('with a model', () => {
  test.each([
    [{}, ['Withdraw', 'Load', 'Pin', 'Keep warm', 'Place']],
    [{ slots: [slot()] }, ['Withdraw', 'Evict', 'Pin', 'Keep warm', 'Place']],
    [{ slots: [slot()], pinned: true }, ['Withdraw', 'Evict', 'Unpin', 'Keep warm', 'Place']],
    [{ enabled: false }, ['Offer']]
  ])('as in %j one can %j', (more, expected) => {
    expect(labels(more)).toEqual(expected);
  });

  test.each([
    ['600', 600],
    ['-1', -1],
    ['', null],
    [' ', null],
    ['soon', 'soon'],
    ['1e999', '1e999']
  ])('"%s" seconds are sent as %j, so that nonsense is refused by the server', (text, value) => {
    const warm = modelActions(model('sd'), trans).find(action => action.label === 'Keep warm');
    expect(warm?.body?.(text)).toEqual({ keep_warm_s: value });
  });
});

test('names in addresses are encoded', () => {
  expect(setLimit(person, trans).path).toBe('participants/client%3AAda%20Lovelace%2F1');
});

test('a pause without a reason sends none, and what is paused can be resumed', () => {
  expect(pauseOrResume('', trans).body?.('  ')).toEqual({});
  expect(pauseOrResume('', trans).body?.('lunch')).toEqual({ reason: 'lunch' });
  expect(pauseOrResume('lunch', trans).path).toBe('queue/resume');
});

test('what hurts says what is lost', () => {
  const kernel = { id: 'k', name: 'Ada', notebook: '', state: 'idle', restart_loses: ['x', 'y'] };
  const restart = restartKernel(person, kernel, trans);
  expect([restart.hurts, restart.before]).toEqual([
    true,
    'Lost with it: x; y. Finished pictures stay.'
  ]);
  expect(cancelJob(job('a', { state: 'running' }), trans).before).toContain('picture is lost');
  expect(clearOrOpen(device(), undefined, trans)).toMatchObject({ method: 'POST', hurts: true });
});
