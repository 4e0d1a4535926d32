/**
 * Decides whether and when to send a request again. All routes compute and store nothing, so sending one again is
 * safe. Nothing here waits.
 */

import { HeadlightConnectionError, HeadlightError, HeadlightTimeout } from "./errors.js";

/** How often a request is sent again, and how long after its start. */
export interface Retries {
  readonly count: number;
  readonly ms: number;
}

export const RETRIED: readonly (number | null)[] = [429, 503];
const FIRST_MS = 100;
const LONGEST_MS = 5000;
const SPREAD = 0.25;
const SPREAD_MS = 1000;

/** When the latest request of a call was answered, by `performance.now`. */
export interface Progress {
  at: number;
}

/**
 * The attempts at one request. If a call has several, attempts before the latest response to another do not count: a
 * busy service is asked again for as long as it keeps answering.
 */
export class Attempts {
  #made = 1;
  #start = performance.now();

  constructor(
    readonly policy: Retries,
    readonly progress: Progress,
  ) {}

  /** Count a failure; returns the milliseconds until the next attempt, or throws the error. */
  waitAfter(error: unknown): number {
    if (this.progress.at > this.#start) {
      this.#start = this.progress.at;
      this.#made = 1;
    }
    const elapsed = performance.now() - this.#start;
    const wait = decide(error, this.policy, this.#made, elapsed, Math.random());
    if (wait === null) throw error;
    this.#made += 1;
    return wait;
  }
}

/**
 * The milliseconds to wait after `made` attempts in `elapsed` milliseconds, or null to give up. `chance`, in [0, 1),
 * adds jitter, so that clients refused together do not return together. The wait is at least `Retry-After`, else
 * 0.1 s, doubled each time up to 5 s, half of it random. If it would end too late, give up: earlier only adds load.
 */
export function decide(
  error: unknown,
  policy: Retries,
  made: number,
  elapsed: number,
  chance: number,
): number | null {
  if (made > policy.count || !isTemporary(error)) return null;
  const remaining = policy.ms - elapsed;
  const least = error.retryAfterMs;
  if (least === null) {
    const wait = (Math.min(LONGEST_MS, FIRST_MS * 2 ** (made - 1)) * (1 + chance)) / 2;
    return wait <= remaining ? wait : null;
  }
  if (least > remaining) return null;
  return Math.min(remaining, least + chance * Math.min(SPREAD_MS, FIRST_MS + SPREAD * least));
}

/** Not after a timeout: the service may still be working on the first attempt. */
function isTemporary(error: unknown): error is HeadlightError {
  if (error instanceof HeadlightConnectionError) return !(error instanceof HeadlightTimeout);
  return error instanceof HeadlightError && RETRIED.includes(error.status);
}
