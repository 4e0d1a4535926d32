/** Sends requests with `fetch`: timeouts, cancelling, and attempts after failures that pass. */

import { type Failure, HeadlightConnectionError, HeadlightError, HeadlightTimeout, refusal, unreadable } from "./errors.js";
import { Attempts, type Progress, type Retries } from "./retry.js";

/** How to reach one service. */
export interface Connection {
  readonly url: string;
  readonly headers: Headers;
  readonly timeoutMs: number;
  readonly retries: Retries;
  readonly concurrency: number;
  /** Makes the error of a request without a complete response; by default it says what `fetch` says. */
  readonly failed?: (failure: Failure) => HeadlightConnectionError;
  /** What sends requests in place of the global `fetch`, which is looked up for each. */
  readonly fetch?: typeof fetch;
}

/** A request, without what all requests of a connection share. */
export interface Wire {
  readonly path: string;
  readonly accept?: string;
  readonly body?: string;
}

const OK = 200;
/** Send a request, with retries, and read the whole response. Throws a HeadlightError. */
export async function fetchWhole<R>(
  connection: Connection,
  wire: Wire,
  signal: AbortSignal | undefined,
  read: (headers: Headers, content: Uint8Array) => R,
  progress: Progress = { at: 0 },
): Promise<R> {
  const exchange = await open(connection, wire, signal, progress);
  try {
    const content = await exchange.content();
    try {
      return read(exchange.headers, content);
    } catch (error) {
      throw unreadable(exchange.headers, error);
    }
  } finally {
    exchange.close();
  }
}

/** Send a request, with retries; returns a 200 whose body is still to be read, and is to be closed. */
export async function open(
  connection: Connection,
  wire: Wire,
  signal: AbortSignal | undefined,
  progress: Progress = { at: 0 },
): Promise<Exchange> {
  const attempts = new Attempts(connection.retries, progress);
  for (;;) {
    let wait: number;
    try {
      return await Exchange.begin(connection, wire, signal);
    } catch (error) {
      signal?.throwIfAborted();
      wait = attempts.waitAfter(error);
    }
    await pause(wait, signal);
  }
}

/** One attempt at a request, and its response. It times out when nothing arrives for `timeoutMs`. */
export class Exchange {
  readonly #controller = new AbortController();
  readonly #url: string;
  readonly #abort = () => this.#controller.abort();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #late = false;
  #response: Response | undefined;

  private constructor(
    readonly connection: Connection,
    wire: Wire,
    readonly signal: AbortSignal | undefined,
  ) {
    this.#url = connection.url + wire.path;
    signal?.throwIfAborted();
    signal?.addEventListener("abort", this.#abort);
  }

  /** Send a request once. Throws a HeadlightError for any status except 200. */
  static async begin(connection: Connection, wire: Wire, signal: AbortSignal | undefined): Promise<Exchange> {
    const exchange = new Exchange(connection, wire, signal);
    try {
      await exchange.#send(wire);
      if (exchange.#response?.status === OK) return exchange;
      const status = exchange.#response?.status ?? 0;
      throw refusal(status, exchange.headers, await exchange.content());
    } catch (error) {
      exchange.close();
      throw exchange.#explained(error);
    }
  }

  get headers(): Headers {
    return this.#response?.headers ?? new Headers();
  }

  /** The pieces of the body as they arrive. */
  async *pieces(): AsyncGenerator<Uint8Array, void, void> {
    const reader = this.#response?.body?.getReader();
    if (reader === undefined) return;
    try {
      for (;;) {
        this.#await();
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(this.#timer); // the time that a caller takes over an item does not count
        yield value;
      }
    } catch (error) {
      throw this.#explained(error);
    }
  }

  /** The whole body. */
  async content(): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.pieces()) pieces.push(piece);
    const whole = new Uint8Array(pieces.reduce((length, piece) => length + piece.length, 0));
    let start = 0;
    for (const piece of pieces) {
      whole.set(piece, start);
      start += piece.length;
    }
    return whole;
  }

  /** End the exchange: the service sees that nothing more is read. */
  close(): void {
    clearTimeout(this.#timer);
    this.signal?.removeEventListener("abort", this.#abort);
    this.#controller.abort();
  }

  async #send({ accept, body }: Wire): Promise<void> {
    const headers = new Headers(this.connection.headers);
    if (accept !== undefined) headers.set("Accept", accept);
    if (body !== undefined) headers.set("Content-Type", "application/json");
    this.#await();
    this.#response = await (this.connection.fetch ?? fetch)(this.#url, {
      headers,
      signal: this.#controller.signal,
      ...(body === undefined ? {} : { method: "POST", body }),
    });
  }

  #await(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#late = true;
      this.#controller.abort();
    }, this.connection.timeoutMs);
  }

  /** The error to throw for one of `fetch` or of reading a body; the caller's own reason if it cancelled the call. */
  #explained(error: unknown): unknown {
    if (this.signal?.aborted) return this.signal.reason;
    if (error instanceof HeadlightError) return error;
    const [url, late] = [this.#url, this.#late];
    const { failed, timeoutMs } = this.connection;
    if (failed) return failed({ url, error, lateMs: late ? timeoutMs : null, begun: this.#response !== undefined });
    return new (late ? HeadlightTimeout : HeadlightConnectionError)(url, String(error), error);
  }
}

/** Wait, never less than `ms`; throws the reason of a signal that is aborted meanwhile. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, Math.ceil(ms) + 1); // timers count whole milliseconds, and the first may be cut short
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}
