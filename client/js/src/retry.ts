/**
 * Decides whether and when to send a request again. All routes compute and store nothing, so sending one again is
 * safe. Nothing here waits.
 */

import { HeadlightConnectionError, HeadlightError, HeadlightTimeout } from "./errors.js";

/**
 * How often a request is sent again, and how long after its start. What is sent at a time that the service named does
 * not count, except that with a `count` of 0 each request is sent once.
 */
export interface Retries {
  readonly count: number;
  readonly ms: number;
}

export const RETRIED: readonly (number | null)[] = [429, 503];
const FIRST_MS = 100;
const LONGEST_MS = 5000;
// What is added by chance to a time that the service named, which has spread its clients already.
const SPREAD = 0.1;
const SPREAD_MS = 250;

/** When the latest request of a call was answered, by `performance.now`. */
export interface Progress {
  at: number;
}

/**
 * The attempts at one request. If a call has several, attempts before the latest response to another do not count: a
 * busy service is asked again for as long as it keeps answering.
 */
export class Attempts {
  #counted = 0;
  #start = performance.now();

  constructor(
    readonly policy: Retries,
    readonly progress: Progress,
  ) {}

  /** Count a failure; returns the milliseconds until the next attempt, or throws the error. */
  waitAfter(error: unknown): number {
    if (this.progress.at > this.#start) {
      this.#start = this.progress.at;
      this.#counted = 0;
    }
    const elapsed = performance.now() - this.#start;
    const wait = decide(error, this.policy, this.#counted, elapsed, Math.random());
    if (wait === null) throw error;
    if (named(error) === null) this.#counted += 1;
    return wait;
  }
}

/**
 * The milliseconds to wait `elapsed` milliseconds after the first attempt, or null to give up. `counted` attempts were
 * made again at times of our own choice. `chance`, in [0, 1), adds jitter, so that clients that failed together do not
 * return together. The wait is the time that the service named or little more, else 0.1 s, doubled each time up to 5 s,
 * half of it random. If it would end too late, give up: earlier only adds load.
 */
export function decide(
  error: unknown,
  policy: Retries,
  counted: number,
  elapsed: number,
  chance: number,
): number | null {
  if (policy.count === 0 || !isTemporary(error)) return null;
  const remaining = policy.ms - elapsed;
  const least = named(error);
  if (least !== null) {
    if (least > remaining) return null;
    return Math.min(remaining, least + chance * Math.min(SPREAD_MS, SPREAD * least));
  }
  if (counted >= policy.count) return null;
  const wait = (Math.min(LONGEST_MS, FIRST_MS * 2 ** counted) * (1 + chance)) / 2;
  return wait <= remaining ? wait : null;
}

/**
 * After how many milliseconds the service says to come back. Null also for 0: to be told to come back at once must not
 * lead to attempts without a pause or end.
 */
function named(error: unknown): number | null {
  return (error instanceof HeadlightError && error.retryAfterMs) || null;
}

/** Not after a timeout: the service may still be working on the first attempt. */
function isTemporary(error: unknown): error is HeadlightError {
  if (error instanceof HeadlightConnectionError) return !(error instanceof HeadlightTimeout);
  return error instanceof HeadlightError && RETRIED.includes(error.status);
}
