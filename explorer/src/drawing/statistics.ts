/** The statistics of heads: what they are called, what they say, and where they end. */

import type { Statistic } from "../../../client/js/src/index.js";
import type { Overview } from "../data/overview.js";
import type { HeadId } from "../state/fields.js";
import { weightText } from "./numbers.js";

export interface StatisticEntry {
  readonly name: Statistic;
  readonly title: string;
  /** What it is, in a sentence without its end. */
  readonly told: string;
}

export const STATISTICS: readonly StatisticEntry[] = [
  { name: "entropy", title: "Entropy", told: "how widely a row is spread, in nats" },
  { name: "confidence", title: "Confidence", told: "the largest weight of a row" },
  { name: "mean_distance", title: "Distance", told: "how far away a row looks" },
  { name: "self", title: "Self", told: "weight on the token itself" },
  { name: "previous", title: "Previous", told: "weight on the token before" },
  { name: "next", title: "Next", told: "weight on the token after" },
  { name: "special", title: "Special", told: "weight on special tokens" },
  { name: "argmax_self", title: "Self first", told: "share of rows with the largest weight on the token itself" },
  {
    name: "argmax_previous",
    title: "Previous first",
    told: "share of rows with the largest weight on the token before",
  },
  { name: "argmax_next", title: "Next first", told: "share of rows with the largest weight on the token after" },
];

/** A statistic of a head; NaN if the answer lacks it, or if there were no rows. */
export function statisticOf({ summary }: Pick<Overview, "summary">, name: Statistic, [layer, head]: HeadId): number {
  return summary[name]?.at(layer, head) ?? Number.NaN;
}

/** The largest value that a statistic can have for an input of this many rows and columns. */
export function limitOf(name: Statistic, size: number): number {
  if (name === "entropy") return Math.log(Math.max(size, 1));
  if (name === "mean_distance") return Math.max(size - 1, 0);
  return 1;
}

/** What each statistic would be if every row looked at all that it sees alike; of the shares of rows there is none. */
export function uniformOf({
  kept,
  thumbnails,
}: Pick<Overview, "kept" | "thumbnails">): Partial<Record<Statistic, number>> {
  const size = kept.length;
  const causal = thumbnails !== null && isCausal(thumbnails.row(0, 0));
  const sums = { entropy: 0, confidence: 0, mean_distance: 0, self: 0, previous: 0, next: 0, special: 0 };
  const before = kept.map(({ special }) => Number(special));
  for (let i = 1; i < size; i++) before[i] = before[i]! + before[i - 1]!;
  for (let i = 0; i < size; i++) {
    const seen = causal ? i + 1 : size;
    const after = seen - 1 - i;
    sums.entropy += Math.log(seen);
    sums.confidence += 1 / seen;
    sums.self += 1 / seen;
    sums.previous += i > 0 ? 1 / seen : 0;
    sums.next += after > 0 ? 1 / seen : 0;
    sums.mean_distance += (i * (i + 1) + after * (after + 1)) / 2 / seen;
    sums.special += before[seen - 1]! / seen;
  }
  return Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, sum / Math.max(size, 1)]));
}

/** Whether a map looks at nothing that comes after. */
function isCausal(map: Float32Array): boolean {
  const side = Math.round(Math.sqrt(map.length));
  return (
    side > 1 && map.every((weight, i) => i % side <= Math.floor(i / side) || weight === 0 || weight === -Infinity)
  );
}

/** All heads, layer by layer. */
export function allHeads({ layers, heads }: Pick<Overview, "layers" | "heads">): HeadId[] {
  return Array.from({ length: layers * heads }, (_, i) => [Math.floor(i / heads), i % heads] as const);
}

/** A head in a line for screen readers. */
export function headText(overview: Overview, [layer, head]: HeadId): string {
  const parts = STATISTICS.slice(0, 7).map(
    ({ name, title }) => `${title.toLowerCase()} ${weightText(statisticOf(overview, name, [layer, head]))}`,
  );
  return `Layer ${layer}, head ${head}: ${parts.join(", ")}`;
}

/** Heads in the order of a column, ties layer by layer; what is not a number comes last either way. */
export function sortedHeads(heads: readonly HeadId[], rate: (id: HeadId) => number, descending: boolean): HeadId[] {
  const sign = descending ? -1 : 1;
  const rated = heads.map((id) => ({ id, value: rate(id) }));
  rated.sort((a, b) => {
    const [x, y] = [Number.isNaN(a.value), Number.isNaN(b.value)];
    return x || y ? Number(x) - Number(y) : sign * (a.value - b.value);
  });
  return rated.map(({ id }) => id);
}
