import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { RoomStream } from '../src/stream';
import { snapshot } from './made';

/** A server that a test makes speak, break off and answer. */
class Server {
  asked: string[] = [];
  open = 0;
  refusal: Response | null = null;
  private writer: ReadableStreamDefaultController<Uint8Array> | null = null;

  answer = async (url: string, init: RequestInit): Promise<Response> => {
    this.asked.push(url.replace(/^.*events/, 'events'));
    if (this.refusal) {
      return this.refusal.clone();
    }
    const body = new ReadableStream<Uint8Array>({
      start: writer => {
        this.writer = writer;
        this.open += 1;
        init.signal?.addEventListener('abort', () =>
          this.end(() => writer.error(new Error('cut')))
        );
      }
    });
    return new Response(body);
  };

  say(text: string): Promise<unknown> {
    this.writer?.enqueue(new TextEncoder().encode(text));
    return vi.advanceTimersByTimeAsync(200);
  }

  end(how: () => void = () => this.writer?.close()): void {
    if (this.writer) {
      how();
      this.open -= 1;
      this.writer = null;
    }
  }
}

const { server } = vi.hoisted(() => ({ server: { now: null as unknown as Server } }));
vi.mock('@jupyterlab/services', () => ({
  ServerConnection: {
    makeRequest: (url: string, init: RequestInit) => server.now.answer(url, init)
  }
}));
vi.mock('@jupyterlab/coreutils', () => ({
  URLExt: { join: (...parts: string[]) => parts.join('/') }
}));

const FIRST = `id: life-7\ndata: ${JSON.stringify(snapshot())}\n\n`;
let page: EventTarget & { hidden: boolean };
let stream: RoomStream;

beforeEach(async () => {
  vi.useFakeTimers();
  page = Object.assign(new EventTarget(), { hidden: false });
  vi.stubGlobal('document', page);
  vi.stubGlobal('window', Object.assign(new EventTarget(), { setTimeout, clearTimeout }));
  server.now = new Server();
  stream = new RoomStream({ baseUrl: '/a/b/' } as never);
  await vi.advanceTimersByTimeAsync(0);
});

afterEach(() => {
  stream.dispose();
  vi.useRealTimers();
});

const show = (visible: boolean): void => {
  page.hidden = !visible;
  page.dispatchEvent(new Event('visibilitychange'));
};

test('many events in a moment are told once', async () => {
  let told = 0;
  stream.changed.connect(() => (told += 1));
  await server.now.say(FIRST + FIRST + FIRST);
  expect([stream.link, stream.room?.version, told]).toEqual(['live', '1', 1]);
});

test('after a break it goes on behind the last event, and keeps what it knew', async () => {
  await server.now.say(FIRST);
  server.now.end();
  await vi.advanceTimersByTimeAsync(100);
  expect([stream.link, stream.room?.version]).toEqual(['lost', '1']);
  await vi.advanceTimersByTimeAsync(1000);
  expect(server.now.asked).toEqual(['events', 'events?after=life-7']);
});

test('while nobody answers it tries ever more seldom, and says why', async () => {
  const body = JSON.stringify({ error: { kind: 'too_many_streams', message: 'Close tabs.' } });
  server.now.refusal = new Response(body, { status: 429 });
  server.now.end();
  await vi.advanceTimersByTimeAsync(60_000);
  const first = server.now.asked.length;
  await vi.advanceTimersByTimeAsync(60_000);
  expect([stream.link, stream.problem]).toEqual(['lost', 'Close tabs.']);
  expect(first).toBeLessThan(11);
  expect(server.now.asked.length - first).toBeLessThan(5);
});

test('a server that says nothing for 40 s counts as gone', async () => {
  await server.now.say(FIRST);
  for (const _ of [1, 2, 3]) {
    await vi.advanceTimersByTimeAsync(15_000);
    await server.now.say(': ping\n\n');
  }
  expect(stream.link).toBe('live');
  await vi.advanceTimersByTimeAsync(40_100);
  expect(server.now.asked.length).toBe(1);
  expect(stream.link).toBe('lost');
});

test('a tab that nobody looks at for a minute has no stream, until somebody looks again', async () => {
  await server.now.say(FIRST);
  show(false);
  await vi.advanceTimersByTimeAsync(30_000);
  await server.now.say(': ping\n\n');
  await vi.advanceTimersByTimeAsync(29_000);
  expect(server.now.open).toBe(1);
  await vi.advanceTimersByTimeAsync(300_000);
  expect([server.now.open, stream.link, server.now.asked.length]).toEqual([0, 'off', 1]);
  show(true);
  await vi.advanceTimersByTimeAsync(0);
  expect([server.now.open, server.now.asked[1]]).toEqual([1, 'events?after=life-7']);
});

test('a tab that is hidden for a moment keeps its stream', async () => {
  await server.now.say(FIRST);
  show(false);
  await vi.advanceTimersByTimeAsync(30_000);
  show(true);
  await vi.advanceTimersByTimeAsync(9_000);
  expect([server.now.open, server.now.asked.length]).toEqual([1, 1]);
});

test('what is disposed of asks for nothing more', async () => {
  stream.dispose();
  await vi.advanceTimersByTimeAsync(600_000);
  expect([server.now.open, server.now.asked.length]).toEqual([0, 1]);
});
