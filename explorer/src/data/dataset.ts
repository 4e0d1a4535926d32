/** Statistics of all heads over a list of texts, which are asked for in batches. */

import { signal } from "@preact/signals";
import type { Statistic, Tensor } from "../../../client/js/src/index.js";
import { overviewFields, type Subject } from "./requests.js";
import type { Source } from "./source.js";

/** Of one run: the statistics of each have 15 KB for 384 heads. */
export const MOST_TEXTS = 5000;
const BATCH = 32;

export type Summary = Readonly<Record<Statistic, Tensor>>;

/** A text, and its line from 1. */
export interface Line {
  readonly line: number;
  readonly text: string;
}

/** The mean over all texts so far of each head, and the sum of squares of what differs from it. */
interface Moments {
  readonly mean: Float64Array;
  readonly squares: Float64Array;
}

/** A run over some texts, in the order in which they were answered. */
export class DatasetRun {
  /** How many texts were answered or refused. */
  readonly done = signal(0);
  readonly ended = signal(false);
  /** Why it ended before all texts were asked for. */
  error: Error | null = null;
  readonly found: (Line & { readonly summary: Summary })[] = [];
  readonly refused: (Line & { readonly error: Error })[] = [];
  readonly #moments: Partial<Record<Statistic, Moments>> = {};
  readonly #controller = new AbortController();

  constructor(
    readonly subject: Subject,
    readonly lines: readonly Line[],
  ) {}

  stop(): void {
    this.#controller.abort();
  }

  async run(source: Source, most: number): Promise<void> {
    const size = Math.min(BATCH, most);
    try {
      for (let start = 0; start < this.lines.length; start += size) {
        await this.#ask(source, this.lines.slice(start, start + size));
      }
    } catch (error) {
      if (!this.#controller.signal.aborted) this.error = error as Error;
    }
    this.ended.value = true;
  }

  /** Ask for some texts; if they are refused, for each half of them, and so on: the rest is answered. */
  async #ask(source: Source, lines: readonly Line[]): Promise<void> {
    const { signal } = this.#controller;
    try {
      const fields = { ...fieldsOf(this.subject), columns: [], signal };
      const { items } = await source.attention(
        lines.map(({ text }) => text),
        fields,
      );
      items.forEach(({ summary }, i) => {
        this.found.push({ ...lines[i]!, summary: summary as Summary });
        this.#count(summary as Summary);
      });
    } catch (error) {
      if (signal.aborted || !isOfTexts(error)) throw error;
      if (lines.length > 1) {
        const half = lines.length >> 1;
        await this.#ask(source, lines.slice(0, half));
        await this.#ask(source, lines.slice(half));
        return;
      }
      this.refused.push({ ...lines[0]!, error: error as Error });
    }
    this.done.value = this.found.length + this.refused.length;
  }

  /** Welford 1962: the sums stay small. */
  #count(summary: Summary): void {
    for (const [name, { data }] of Object.entries(summary)) {
      const empty = () => new Float64Array(data.length);
      this.#moments[name as Statistic] ??= { mean: empty(), squares: empty() };
      const { mean, squares } = this.#moments[name as Statistic]!;
      data.forEach((value, i) => {
        const difference = value - mean[i]!;
        mean[i]! += difference / this.found.length;
        squares[i]! += difference * (value - mean[i]!);
      });
    }
  }

  /** The mean and the standard deviation over all texts so far, of the statistic of a head by its index. */
  momentsOf(name: Statistic, head: number): readonly [mean: number, deviation: number] {
    const { mean, squares } = this.#moments[name] ?? {};
    return [mean?.[head] ?? Number.NaN, Math.sqrt((squares?.[head] ?? Number.NaN) / this.found.length)];
  }
}

/** What says how statistics of a text are made. */
export function fieldsOf(subject: Subject): object {
  return overviewFields(subject, false);
}

/** The texts of a list, one in each line that is not empty. */
export function linesOf(list: string): Line[] {
  return list
    .split(/\r?\n/)
    .map((text, i) => ({ line: i + 1, text: text.trim() }))
    .filter(({ text }) => text !== "")
    .slice(0, MOST_TEXTS);
}

/** Whether a service refused a request for its texts; not for a key, nor because it is busy or away. */
function isOfTexts(error: unknown): boolean {
  return [400, 413, 422, 500, 504].includes((error as { status?: number }).status!);
}
