/**
 * How many inputs to send per request, so that the service accepts it and other clients have room. Nothing here sends
 * anything.
 */

import { HeadlightError, place, rename, type Rows } from "./errors.js";
import type { Info } from "./info.js";
import type { Row } from "./inputs.js";

export const MAX_INPUTS = 256;
/** Of one request of a call with several: larger ones gain nothing, and delay other clients. */
const MAX_BODY_BYTES = 512 * 1024;
/** The ids that one request of `/decode` may have. */
export const MAX_IDS = 32768;
const QUEUE_TOKENS = 65536; // assumed of a service that does not report it
const SHARE = 2; // the requests of one call fill at most 1/SHARE of the queue
const BYTES_PER_TOKEN = 3; // English rarely has fewer, and a CJK character is one token of three bytes
const MARGIN = 0.9; // of the number that should fit according to a refusal: texts differ in length

const TOO_MUCH: readonly (number | null)[] = [413, 504];
const TOO_SHORT = "urn:headlight:deadline-too-short";

/** The service's limits; lengths are in tokens. */
export interface Limits {
  readonly inputs: number;
  readonly bodyBytes: number;
  readonly queueTokens: number;
  readonly maxLength: number;
}

/** The limits of a model, the first by default; those that a service does not report have our defaults. */
export function limitsOf(info: Partial<Info> | null, model: string | undefined): Limits {
  const served = info?.models?.find(({ name }) => model === undefined || model === name);
  return {
    inputs: info?.limits?.max_inputs ?? MAX_INPUTS,
    bodyBytes: Math.min(info?.limits?.max_body_bytes ?? MAX_BODY_BYTES, MAX_BODY_BYTES),
    queueTokens: served?.max_queue_tokens ?? QUEUE_TOKENS,
    maxLength: served?.max_length ?? Infinity,
  };
}

/** The parts of a call, one per request; after one is refused as too large, later ones are smaller. */
export class Parts {
  #limits: Limits;
  #next = 0;
  #again: Rows[] = [];
  readonly #tokens: number;

  /**
   * `frameBytes` is the size of a body without its inputs; `concurrency` requests are in flight at a time. `called` is the
   * caller's name of the inputs, for errors, if that is another than the service's.
   */
  constructor(
    readonly rows: readonly Row[],
    limits: Limits,
    readonly frameBytes: number,
    concurrency: number,
    readonly called?: string,
  ) {
    this.#limits = limits;
    this.#tokens = Math.max(1, Math.floor(limits.queueTokens / (SHARE * concurrency)));
  }

  /** The next part, or null after the last. */
  next(): Rows | null {
    const again = this.#again.shift();
    if (again !== undefined) return again;
    if (this.#next === this.rows.length) return null;
    const start = this.#next;
    this.#next = start + this.#fitting(start);
    return { start, stop: this.#next };
  }

  /** Split a part that was too large or too slow, to be sent again; throws any other error. */
  refused(error: unknown, part: Rows): void {
    const count = this.learn(error, part.stop - part.start);
    if (count === null) throw this.placed(error, part);
    for (let start = part.start; start < part.stop; start += count) {
      this.#again.push({ start, stop: Math.min(start + count, part.stop) });
    }
  }

  /** Record in an error which inputs it concerns, unless they are all of the call. */
  placed(error: unknown, part: Rows): unknown {
    if (error instanceof HeadlightError) {
      if (part.stop - part.start < this.rows.length) place(error, part);
      if (this.called !== undefined) rename(error, this.called);
    }
    return error;
  }

  /** How many inputs to send per request if `count` were too many; null for any other error. */
  learn(error: unknown, count: number): number | null {
    if (!isTooMuch(error) || count === 1) return null;
    const fitting = fittingAfter(error, count);
    this.#limits = { ...this.#limits, inputs: Math.min(this.#limits.inputs, fitting) };
    return Math.ceil(count / Math.ceil(count / fitting)); // parts of equal size
  }

  /** Count the inputs from `start` that fit into one request: at least one, whatever its size. */
  #fitting(start: number): number {
    const last = Math.min(this.rows.length, start + this.#limits.inputs);
    let bytes = this.frameBytes;
    let tokens = 0;
    let ids = 0;
    for (let i = start; i < last; i++) {
      const row = this.rows[i] as Row;
      bytes += row.bytes + 1;
      ids += row.ids ?? 0;
      tokens += row.ids === undefined ? Math.min(this.#limits.maxLength, row.bytes / BYTES_PER_TOKEN) : 0;
      if (bytes > this.#limits.bodyBytes || tokens > this.#tokens || ids > MAX_IDS) return Math.max(1, i - start);
    }
    return last - start;
  }
}

/** Whether the service may do a part of what it refused: it was too large, or takes too long. */
export function isTooMuch(error: unknown): error is HeadlightError {
  return error instanceof HeadlightError && (TOO_MUCH.includes(error.status) || error.type === TOO_SHORT);
}

/** Estimate how many of `count` inputs would fit, from the limits in a refusal: 1 to count − 1. */
function fittingAfter({ limit, actual, type }: HeadlightError, count: number): number {
  if (typeof limit !== "number" || typeof actual !== "number" || !(0 < limit && limit < actual)) {
    return Math.floor(count / 2); // a proxy's 413, or a timeout: no numbers to calculate with
  }
  const margin = type.endsWith("too-many-inputs") ? 1 : MARGIN;
  return Math.min(count - 1, Math.max(1, Math.floor((margin * count * limit) / actual)));
}
