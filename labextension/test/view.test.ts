import { describe, expect, test } from 'vitest';
import { after, type Room } from '../src/room';
import type { StreamEvent } from '../src/types';
import { bars, modelLines, queueLines, statusLine } from '../src/view';
import { device, job, model, reservation, room, slot, trans } from './made';

const nobody = () => false;
const holders = [
  { kind: 'margin', name: 'margin', bytes: 2e9 },
  { kind: 'weights', name: 'turbo', bytes: 10e9 },
  { kind: 'weights', name: 'sd', bytes: 20e9 },
  { kind: 'shared', name: 'sd, turbo', bytes: 5e9 },
  { kind: 'working', name: 'Ada', bytes: 3e9 },
  { kind: 'reservation', name: 'Grace', bytes: 6e9 },
  { kind: 'notebook', name: 'train', bytes: 1e9 },
  { kind: 'foreign', name: 'Xorg', bytes: 3e9 },
  { kind: 'cache', name: 'worker', bytes: 0 }
];
const slots = [
  slot(),
  slot({ model: 'turbo', state: 'loading', done_bytes: 5e9, total_bytes: 20e9 })
];
const full = () => room({ devices: [device({ holders, slots })] });

describe('the bar', () => {
  test('names every byte once, models in front and what is free at the end', () => {
    const [bar] = bars(full(), 100, trans);
    expect(bar?.parts.map(part => part.label)).toEqual([
      'SD',
      'TURBO',
      'shared parts',
      'drawing for Ada',
      'reserved by Grace',
      "train's own code",
      'Xorg',
      'safety margin',
      'free'
    ]);
    expect(bar?.parts.reduce((sum, part) => sum + part.bytes, 0)).toBe(80e9);
    expect(bar?.parts.reduce((sum, part) => sum + part.share, 0)).toBeCloseTo(1);
    expect(bar?.used).toBe('50/80 GB');
  });

  test('what stays free beside a model stands next to what is free, with a look of its own', () => {
    const kept = { kind: 'kept_free', name: 'turbo', bytes: 1e9 };
    const [bar] = bars(
      room({ devices: [device({ holders: [kept, ...holders], slots })] }),
      100,
      trans
    );
    const parts = bar?.parts.slice(-2).map(part => [part.label, part.look]);
    expect(parts).toEqual([
      ['stays free beside turbo', 'kept'],
      ['free', 'free']
    ]);
  });

  test('a model has the same colour on every GPU and in the list', () => {
    const two = room({
      devices: [
        device({ holders, slots }),
        device({
          id: 'cuda:1',
          holders: [{ kind: 'weights', name: 'turbo', bytes: 1 }],
          slots: [slot({ device: 'cuda:1', model: 'turbo' })]
        })
      ]
    });
    const looks = bars(two, 100, trans).map(
      bar => bar.parts.find(part => part.label === 'TURBO')?.look
    );
    const listed = modelLines(two, 100, trans).find(line => line.id === 'turbo')?.look;
    expect(looks).toEqual([listed, listed]);
  });

  test('a model that loads shows how far it is', () => {
    const part = bars(full(), 100, trans)[0]?.parts.find(each => each.label === 'TURBO');
    expect(part?.progress).toBe(0.25);
    expect(part?.detail).toBe('loading, 5/20 GB');
  });

  test('a load whose speed is known says it, and the seconds that are left', () => {
    const loading = { model: 'turbo', state: 'loading' as const, bytes_per_s: 12.1e9 };
    const slots = [slot({ ...loading, done_bytes: 3e9, total_bytes: 27e9 })];
    const now = room({ devices: [device({ holders, slots })] }, [
      model('sd'),
      model('turbo', { slots })
    ]);
    const expected = 'loading, 3/27 GB, 12.1 GB/s, 2 s left';
    expect(modelLines(now, 100, trans)[1]?.words).toBe(expected);
    expect(bars(now, 100, trans)[0]?.parts.find(part => part.label === 'TURBO')?.detail).toBe(
      expected
    );
  });

  test('more bytes held than there are make no bar longer than its box', () => {
    const [bar] = bars(
      room({
        devices: [
          device({ free_bytes: -10e9, holders: [{ kind: 'foreign', name: 'x', bytes: 90e9 }] })
        ]
      }),
      100,
      trans
    );
    expect(bar?.parts.map(part => part.share)).toEqual([1, 0]);
  });

  test.each([
    [{ state: 'starting', reason: '' }, 'starting …'],
    [{ state: 'starting', reason: 'killed' }, 'being started again (killed)'],
    [
      { state: 'lost', reason: 'the driver reported Xid 79', retry_s: 60 },
      'taken out: the driver reported Xid 79; tried again every 60 s'
    ],
    [{ state: 'lost', reason: 'no driver', retry_s: null }, 'taken out: no driver']
  ])('a GPU that is %j says "%s"', (more, note) => {
    expect(bars(room({ devices: [device(more)] }), 100, trans)[0]?.note).toBe(note);
  });

  test('a GPU that is taken as a whole says so', () => {
    const whole = reservation('r', { size_bytes: null, whole: true, expires_in_s: null });
    expect(bars(room({ reservations: [whole] }), 100, trans)[0]?.note).toBe(
      'taken as a whole by Ada'
    );
  });
});

describe('the models', () => {
  const words = (more: Parameters<typeof model>[1]) =>
    modelLines(room({}, [model('sd', more)]), 100, trans)[0]?.words;

  test.each([
    [{}, 'not loaded (20.0 GB)'],
    [{ enabled: false, reason: 'too large' }, 'not offered: too large'],
    [{ problem: 'no files' }, 'no files'],
    [
      { state: 'downloading' as const, done_bytes: 1e9, total_bytes: 4e9 },
      'downloading, 1.0/4.0 GB'
    ],
    [{ slots: [slot()] }, 'ready'],
    [{ slots: [slot({ pinned: true, idle_s: 720 })] }, 'ready, pinned, idle for 12 min'],
    [{ slots: [slot({ holds: 2 })] }, 'ready, held by 2 notebooks'],
    [{ slots: [slot({ running_jobs: 1 })] }, 'drawing'],
    [{ slots: [slot({ compiled: true, loras: [] })] }, 'ready · compiled'],
    [
      { slots: [slot({ idle_s: 720, compiled: true, loras: ['retro', 'ink'] })] },
      'ready, idle for 12 min · compiled · with retro, ink'
    ],
    [{ slots: [slot({ running_jobs: 1, loras: ['ink'] })] }, 'drawing · with ink'],
    [{ slots: [slot({ placement: 'everything on the GPU' })] }, 'ready'],
    [
      { slots: [slot({ placement: 'the denoiser partly streamed', compiled: true })] },
      'ready · the denoiser partly streamed · compiled'
    ],
    [{ slots: [slot({ state: 'failed', error: { kind: 'x', message: 'no room' } })] }, 'no room']
  ])('%j reads "%s"', (more, expected) => {
    expect(words(more)).toBe(expected);
  });

  test('an idle model grows older though nothing is told of it, in the bar too', () => {
    const idle = slot({ idle_s: 30 });
    const sd = { kind: 'weights', name: 'sd', bytes: 20e9 };
    const told = room({ devices: [device({ holders: [sd], slots: [idle] })] }, [
      model('sd', { slots: [idle] })
    ]);
    const words = (now: number) => [
      modelLines(told, now, trans)[0]?.words,
      bars(told, now, trans)[0]?.parts[0]?.detail
    ];
    expect(words(90)).toEqual(['ready', 'ready']); // a clock that was set back
    expect(words(120)).toEqual(['ready', 'ready']);
    expect(words(130)).toEqual(['ready, idle for 60 s', 'ready, idle for 60 s']);
    expect(words(790)).toEqual(['ready, idle for 12 min', 'ready, idle for 12 min']);
  });

  test('what is told anew of an idle model counts from then on', () => {
    const events: StreamEvent[] = [
      { event: 'slot', slot: slot({ idle_s: 90 }), freed_bytes: 0, why: '' },
      { event: 'device', device: device({ slots: [slot({ idle_s: 90 })] }) },
      { event: 'models', models: [model('sd', { slots: [slot({ idle_s: 90 })] })], problems: [] }
    ];
    for (const event of events) {
      const told = after(room({}, [model('sd', { slots: [slot()] })]), event, 500) as Room;
      const slots = [...told.devices, ...told.models].flatMap(each => each.slots);
      expect(slots.filter(each => each.idle_s === 90).map(each => each.told_at)).toContain(500);
    }
  });

  test('of several slots the best one counts', () => {
    const [line] = modelLines(
      room({}, [model('sd', { slots: [slot({ state: 'failed' }), slot({ device: 'cuda:1' })] })]),
      100,
      trans
    );
    expect(line?.state).toBe('ready');
  });
});

describe('the queue', () => {
  test('shows who is served, then who waits, with mine marked and the waits counted down', () => {
    const now = room({
      running: [job('r', { state: 'running', position: 0, step: 5 })],
      waiting: [
        job('a', { participant: 'Grace' }),
        job('b', { position: 2, expected_wait_s: null })
      ]
    });
    const lines = queueLines(now, each => each.id === 'b', 108, trans);
    expect(lines.map(({ who, words, mine }) => [who, words, mine])).toEqual([
      ['Ada', 'step 5 of 20', false],
      ['Grace', 'in 12 s', false],
      ['Ada', 'waits', true]
    ]);
    expect(lines[0]?.progress).toBe(0.25);
  });

  test('a job that went on after its GPU ran out of memory says how', () => {
    const went_on = 'went on with VAE tiling';
    const now = room({
      running: [job('r', { state: 'running', went_on })],
      waiting: [job('a', { reason: 'Grace has 8.0 GB.' })]
    });
    expect(queueLines(now, nobody, 100, trans).map(line => line.reason)).toEqual([
      went_on,
      'Grace has 8.0 GB.'
    ]);
  });

  test('has the reservations that wait: whose, how much, where, and what for', () => {
    const waits = {
      participant: 'Grace',
      kernel: 'k',
      state: 'waiting' as const,
      position: 2,
      expected_wait_s: 30,
      reason: 'what runs there finishes first'
    };
    const now = room({
      running: [job('run', { state: 'running', position: 0 })],
      waiting: [job('a'), job('b', { position: 2 })],
      reservations: [reservation('has'), reservation('waits', waits)]
    });
    const lines = queueLines(now, asked => asked.kernel === 'k', 110, trans);
    expect(lines.map(line => line.id)).toEqual(['run', 'a', 'waits', 'b']);
    expect(lines[2]).toEqual({
      id: 'waits',
      who: 'Grace',
      model: 'own code: 8.0 GB of cuda:0',
      words: 'in 20 s',
      reason: 'what runs there finishes first',
      mine: true,
      running: false,
      place: 2,
      progress: null
    });
  });

  test.each([
    [{ size_bytes: null, whole: true }, 'own code: all of cuda:0'],
    [{ size_bytes: null, whole: true, device: null }, 'own code: a whole GPU'],
    [{ device: null }, 'own code: 8.0 GB']
  ])('a reservation of %j is for "%s"', (more, words) => {
    const now = room({ reservations: [reservation('r', { state: 'waiting', ...more })] });
    expect(queueLines(now, nobody, 100, trans)[0]).toMatchObject({ model: words, words: 'waits' });
  });

  test('a wait never goes below now, and a paused queue says so', () => {
    const now = room({ waiting: [job('a'), job('b', { waiting_for: 'pause' })] });
    expect(queueLines(now, nobody, 1000, trans).map(line => line.words)).toEqual([
      'any moment',
      'paused'
    ]);
  });
});

describe('the status bar', () => {
  test('names memory, the queue, and my place in it', () => {
    const now = room({ waiting: [job('a'), job('b', { position: 2 }), job('c', { position: 3 })] });
    expect(statusLine(now, nobody, 100, trans)).toBe('GPU 50/80 GB · 3 waiting');
    expect(statusLine(now, each => each.id === 'a', 100, trans)).toBe(
      'GPU 50/80 GB · 3 waiting · you: next, in 20 s'
    );
    expect(statusLine(now, each => each.id === 'c', 110, trans)).toBe(
      'GPU 50/80 GB · 3 waiting · you: place 3, in 10 s'
    );
  });

  test('says nothing of a memory that is not known yet', () => {
    const starting = room({
      devices: [device({ state: 'starting', total_bytes: 0, free_bytes: 0 })]
    });
    expect(statusLine(starting, nobody, 100, trans)).toBe('GPU starting');
    expect(bars(starting, 100, trans)[0]).toMatchObject({ used: '', note: 'starting …' });
  });

  test('a job of mine that runs counts more than one that waits', () => {
    const now = room({
      paused: 'lunch',
      running: [job('r', { state: 'running', step: 3 })],
      waiting: [job('a')]
    });
    expect(statusLine(now, () => true, 100, trans)).toBe(
      'GPU 50/80 GB · paused · 1 waiting · you: step 3 of 20'
    );
  });
});
