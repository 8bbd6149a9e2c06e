import { describe, expect, test } from 'vitest';
import { joined, line, top } from '../src/chart';
import { amount, amountOf, span, startsIn } from '../src/format';
import { EventReader } from '../src/sse';
import { trans } from './made';

describe('the stream', () => {
  const text = ': ping\n\nid: a-1\nevent: job\ndata: {"x":1}\n\nid: a-2\ndata: {"x":2}\n\n';

  test.each([1, 2, 7, 1000])('is read whole from pieces of %i characters', size => {
    const reader = new EventReader();
    const messages = [];
    for (let i = 0; i < text.length; i += size) {
      messages.push(...reader.read(text.slice(i, i + size)));
    }
    expect(messages).toEqual([
      { id: 'a-1', data: '{"x":1}' },
      { id: 'a-2', data: '{"x":2}' }
    ]);
  });

  test('an event that is not whole yet is not told', () => {
    expect(new EventReader().read('id: a-1\ndata: {"x"')).toEqual([]);
  });
});

describe('numbers', () => {
  test.each([
    [0, '0 MB'],
    [1.24e6, '1.2 MB'],
    [42e6, '42 MB'],
    [3.14e9, '3.1 GB'],
    [141e9, '141 GB']
  ])('%d bytes are %s', (bytes, words) => {
    expect(amount(bytes)).toBe(words);
  });

  test('a part and its whole have one unit', () => {
    expect(amountOf(61.2e9, 80e9)).toBe('61/80 GB');
    expect(amountOf(0.3e9, 2e9)).toBe('0.3/2.0 GB');
    expect(amountOf(-1, 80e9)).toBe('0/80 GB');
  });

  test.each([
    [20.4, '20 s'],
    [89, '89 s'],
    [200, '3 min'],
    [7200, '2 h']
  ])('%d seconds are %s', (seconds, words) => {
    expect(span(seconds)).toBe(words);
  });

  test('a start that nobody knows is called so', () => {
    expect(startsIn(null, trans)).toBe('waits');
    expect(startsIn(0, trans)).toBe('any moment');
    expect(startsIn(30, trans)).toBe('in 30 s');
  });
});

describe('a chart', () => {
  const box = { width: 100, height: 10, from: 0, to: 100, most: 10, gap_s: 30 };

  test('its line goes from left to right, its height from the bottom up', () => {
    const samples = [
      { at: 0, value: 0 },
      { at: 25, value: 5 },
      { at: 50, value: 10 }
    ];
    expect(line(samples, box)).toBe('M0.0 10.0 L25.0 5.0 L50.0 0.0');
  });

  test('gaps stay gaps, and what is older than the chart is left out', () => {
    const samples = [-5, 10, 90].map(at => ({ at, value: 20 }));
    expect(line(samples, box)).toBe('M10.0 0.0 M90.0 0.0');
  });

  test.each([
    [[], 5, 5],
    [[3, 7], 5, 10],
    [[11], 5, 20],
    [[450], 10, 500]
  ])('the top over %j, at least %d, is %d', (values, least, expected) => {
    expect(
      top(
        values.map(value => ({ at: 0, value })),
        least
      )
    ).toBe(expected);
  });

  const points = (...at: number[]) =>
    at.map(each => ({
      at: each,
      waiting: 0,
      running: 0,
      images_per_minute: 0,
      used_bytes: {},
      reserved_bytes: {}
    }));

  test('a history goes on with what is new, each point once, for half an hour', () => {
    const first = joined(null, { now: 30, every_s: 10, points: points(10, 20, 30) });
    const next = joined(first, { now: 1815, every_s: 10, points: points(30, 40) });
    expect(next.points.map(point => point.at)).toEqual([20, 30, 40]);
  });
});
