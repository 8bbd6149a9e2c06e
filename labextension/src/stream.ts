/**
 * The one event stream of a browser tab, which all parts of the panel share.
 *
 * It comes back by itself, later and later, and goes on after the last event that it had. A tab
 * that nobody looks at has no stream, and so costs the server nothing.
 */

import { ServerConnection } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Signal, type ISignal } from '@lumino/signaling';
import { address, refusalOf } from './api';
import { after, type Room } from './room';
import { EventReader } from './sse';
import type { StreamEvent } from './types';

/** `off`: nobody looks. `lost`: the connection broke, or the server says nothing any more. */
export type Link = 'connecting' | 'live' | 'lost' | 'off';

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 30_000;
/** The server sends something at least every 15 s. */
const SILENT_MS = 40_000;
const HIDDEN_MS = 60_000;
/** Many events in a moment are one change of the screen. */
const TOGETHER_MS = 100;

export class RoomStream implements IDisposable {
  constructor(private readonly settings: ServerConnection.ISettings) {
    document.addEventListener('visibilitychange', this.onVisibility);
    window.addEventListener('offline', this.onOffline);
    window.addEventListener('online', this.onOnline);
    this.start();
  }

  /** What is known; null before anything is. */
  get room(): Room | null {
    return this._room;
  }

  get link(): Link {
    return this._link;
  }

  /** When the server was last heard, in seconds since 1970. */
  get heardAt(): number {
    return this._heardAt;
  }

  /** Why the server gives no stream, in its words; "" where it is just not there. */
  get problem(): string {
    return this._problem;
  }

  /** Room or link changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    this._disposed = true;
    document.removeEventListener('visibilitychange', this.onVisibility);
    window.removeEventListener('offline', this.onOffline);
    window.removeEventListener('online', this.onOnline);
    window.clearTimeout(this._hiding);
    this.stop();
    Signal.clearData(this);
  }

  private readonly onVisibility = (): void => {
    window.clearTimeout(this._hiding);
    if (document.hidden) {
      this._hiding = window.setTimeout(() => {
        this.stop();
        this.become('off');
      }, HIDDEN_MS);
    } else if (this._link === 'off' || this._link === 'lost') {
      this.start();
    }
  };

  /** A connection that the browser knows to be dead would otherwise only fall silent. */
  private readonly onOffline = (): void => this._connection?.abort();

  private readonly onOnline = (): void => {
    if (this._link === 'lost') {
      this.start();
    }
  };

  private start(): void {
    this.stop();
    this.become('connecting');
    const stopped = new AbortController();
    this._stopped = stopped;
    void this.keepReading(stopped.signal);
  }

  private stop(): void {
    this._stopped?.abort();
  }

  private async keepReading(stopped: AbortSignal): Promise<void> {
    let wait_ms = FIRST_WAIT_MS;
    while (!stopped.aborted) {
      try {
        await this.read(stopped, () => {
          wait_ms = FIRST_WAIT_MS;
        });
      } catch {
        this._problem = ''; // it broke off: the next try tells more
      }
      if (stopped.aborted) {
        return;
      }
      this.become('lost');
      await pause(wait_ms * (0.75 + Math.random() / 2), stopped);
      wait_ms = Math.min(2 * wait_ms, LONGEST_WAIT_MS);
    }
  }

  /** One connection, until it ends, breaks or falls silent. */
  private async read(stopped: AbortSignal, heard: () => void): Promise<void> {
    const broken = new AbortController();
    this._connection = broken;
    const onStopped = () => broken.abort();
    stopped.addEventListener('abort', onStopped);
    let silence = 0;
    const listen = () => {
      window.clearTimeout(silence);
      silence = window.setTimeout(() => broken.abort(), SILENT_MS);
    };
    listen();
    try {
      const place = this._lastId ? `events?after=${encodeURIComponent(this._lastId)}` : 'events';
      const response = await ServerConnection.makeRequest(
        address(this.settings, place),
        { signal: broken.signal, cache: 'no-store' },
        this.settings
      );
      if (!response.ok || !response.body) {
        this._problem = (await refusalOf(response)).message;
        return;
      }
      this._problem = '';
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const events = new EventReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) {
          return;
        }
        listen();
        heard();
        this._heardAt = Date.now() / 1000;
        this.become('live');
        for (const message of events.read(value)) {
          this._lastId = message.id || this._lastId;
          this.take(JSON.parse(message.data) as StreamEvent);
        }
      }
    } finally {
      window.clearTimeout(silence);
      stopped.removeEventListener('abort', onStopped);
    }
  }

  private take(event: StreamEvent): void {
    const room = after(this._room, event, Date.now() / 1000);
    if (room !== this._room) {
      this._room = room;
      this.tell();
    }
  }

  private become(link: Link): void {
    if (link !== this._link) {
      this._link = link;
      this.tell();
    }
  }

  private tell(): void {
    this._telling ??= window.setTimeout(() => {
      this._telling = null;
      this._changed.emit();
    }, TOGETHER_MS);
  }

  private _room: Room | null = null;
  private _link: Link = 'connecting';
  private _problem = '';
  private _heardAt = 0;
  private _lastId = '';
  private _disposed = false;
  private _hiding = 0;
  private _telling: number | null = null;
  private _stopped: AbortController | null = null;
  private _connection: AbortController | null = null;
  private readonly _changed = new Signal<this, void>(this);
}

function pause(ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const timer = window.setTimeout(resolve, ms);
    stopped.addEventListener('abort', () => {
      window.clearTimeout(timer);
      resolve();
    });
  });
}
