/** Calls that take several requests: sent at the same time, up to a limit, and joined in the order of the inputs. */

import type { Rows } from "./errors.js";
import type { Progress } from "./retry.js";
import type { Parts } from "./splitting.js";

/** Sends a part of a call, and reads the response. */
export type Send<R> = (part: Rows, signal?: AbortSignal, progress?: Progress) => Promise<R>;

/**
 * Send all parts, `concurrency` at a time; returns the answers in order. The first failure cancels the other requests,
 * and is thrown when they have ended.
 */
export async function sendAll<R>(
  parts: Parts,
  send: Send<R>,
  concurrency: number,
  signal: AbortSignal | undefined,
): Promise<R[]> {
  const answers = new Map<number, R>();
  const progress = { at: 0 };
  const controller = new AbortController();
  const cancel = () => controller.abort(signal?.reason);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", cancel);
  const failures: unknown[] = [];

  async function work(): Promise<void> {
    try {
      for (let part = parts.next(); part !== null && !controller.signal.aborted; part = parts.next()) {
        try {
          answers.set(part.start, await send(part, controller.signal, progress));
          progress.at = performance.now();
        } catch (error) {
          parts.refused(error, part);
        }
      }
    } catch (error) {
      failures.push(error);
      controller.abort();
    }
  }

  await Promise.all(Array.from({ length: Math.min(concurrency, parts.rows.length) }, work));
  signal?.removeEventListener("abort", cancel);
  signal?.throwIfAborted();
  if (failures.length > 0) throw failures[0];
  return [...answers.keys()].sort((a, b) => a - b).map((start) => answers.get(start) as R);
}
