/** Statistics of all heads over a list of texts, which are asked for in batches. */

import { signal } from "@preact/signals-core";
import type { Statistic, Tensor } from "../../../client/js/src/index.js";
import { overviewFields, type Subject } from "./requests.js";
import type { Source } from "./source.js";

/** Of one run: the statistics of a text take 15 KB for 384 heads. */
export const MOST_TEXTS = 5000;
const BATCH = 32;

type Summary = Record<Statistic, Tensor>;

/** A text, and its line from 1. */
export interface Line {
  readonly line: number;
  readonly text: string;
}

/** A run over some texts. */
export class DatasetRun {
  /** How many texts were answered or refused. */
  readonly done = signal(0);
  readonly ended = signal(false);
  /** Why it ended before all texts were asked for. */
  error: Error | null = null;
  readonly found: (Line & { readonly summary: Summary })[] = [];
  readonly refused: (Line & { readonly error: Error })[] = [];
  /** The sums over all texts so far, and those of squares, of each head. */
  readonly #sums: Partial<Record<Statistic, readonly [sums: Float64Array, squares: Float64Array]>> = {};
  #stopped = false;

  constructor(
    readonly subject: Subject,
    readonly lines: readonly Line[],
  ) {}

  /** End after the batch that is on its way. */
  stop(): void {
    this.#stopped = true;
  }

  async run(source: Source): Promise<void> {
    try {
      for (let start = 0; start < this.lines.length && !this.#stopped; start += BATCH) {
        await this.#ask(source, this.lines.slice(start, start + BATCH));
      }
    } catch (error) {
      this.error = error as Error;
    }
    this.ended.value = true;
  }

  /** Ask for some texts; if they are refused, for each half of them, and so on: the rest is answered. */
  async #ask(source: Source, lines: readonly Line[]): Promise<void> {
    if (this.#stopped) return;
    const texts = lines.map(({ text }) => text);
    try {
      const { items } = await source.attention(texts, { ...fieldsOf(this.subject), columns: [] });
      for (const [i, { summary }] of items.entries()) this.#add(lines[i]!, summary as Summary);
    } catch (error) {
      if (!isOfTexts(error)) throw error;
      const half = lines.length >> 1;
      if (half > 0) {
        await this.#ask(source, lines.slice(0, half));
        await this.#ask(source, lines.slice(half));
      } else this.refused.push({ ...lines[0]!, error: error as Error });
    }
    this.done.value = this.found.length + this.refused.length;
  }

  #add(line: Line, summary: Summary): void {
    this.found.push({ ...line, summary });
    for (const [name, { data }] of Object.entries(summary)) {
      this.#sums[name as Statistic] ??= [new Float64Array(data.length), new Float64Array(data.length)];
      const own = this.#sums[name as Statistic]!;
      data.forEach((value, i) => {
        own[0][i]! += value;
        own[1][i]! += value * value;
      });
    }
  }

  /** The mean and the standard deviation over all texts so far, of the statistic of a head by its index. */
  momentsOf(name: Statistic, head: number): readonly [mean: number, deviation: number] {
    const [mean, square] = this.#sums[name]!.map((sums) => sums[head]! / this.found.length) as [number, number];
    return [mean, Math.sqrt(Math.max(0, square - mean * mean))];
  }
}

/** What says how statistics of a text are made. */
export function fieldsOf(subject: Subject) {
  return overviewFields(subject, false);
}

/** The texts of a list, one in each line that is not empty. */
export function linesOf(list: string): Line[] {
  return list
    .split("\n")
    .map((text, i) => ({ line: i + 1, text: text.trim() }))
    .filter(({ text }) => text);
}

/** Whether a service refused a request for its texts; not for an option or a key, nor because it is busy or away. */
function isOfTexts(error: unknown): boolean {
  const { status, field } = error as { status?: number; field?: string | null };
  if (status === 400 || status === 422) return (field ?? "inputs").startsWith("inputs");
  return status === 413 || status === 500 || status === 504;
}
