/** Which tokens of two inputs are the same: the longest sequence that both have. */

import type { Unit } from "../../data/overview.js";

/** Positions of the one input by those of the other. */
export interface Alignment {
  readonly toSecond: ReadonlyMap<number, number>;
  readonly toFirst: ReadonlyMap<number, number>;
}

/** Of the table of two longer inputs the middle is left out, and their ends are compared alone. */
const LARGEST_TABLE = 1 << 21;

type Named = Pick<Unit, "token" | "segment">;

export function align(first: readonly Named[], second: readonly Named[]): Alignment {
  const same = (i: number, j: number): boolean =>
    first[i]!.token === second[j]!.token && first[i]!.segment === second[j]!.segment;
  const shorter = Math.min(first.length, second.length);
  let start = 0;
  while (start < shorter && same(start, start)) start += 1;
  let end = 0;
  while (end < shorter - start && same(first.length - 1 - end, second.length - 1 - end)) end += 1;
  const pairs: [number, number][] = [];
  for (let i = 0; i < start; i++) pairs.push([i, i]);
  for (let i = 1; i <= end; i++) pairs.push([first.length - i, second.length - i]);
  const [rows, columns] = [first.length - start - end, second.length - start - end];
  if (rows * columns <= LARGEST_TABLE) {
    pairs.push(...common(rows, columns, (i, j) => same(start + i, start + j)).map(shifted(start)));
  }
  return { toSecond: new Map(pairs), toFirst: new Map(pairs.map(([i, j]) => [j, i])) };
}

/** Whether two inputs have the same tokens in the same places. */
export function sameTokens(first: readonly Named[], second: readonly Named[]): boolean {
  return first.length === second.length && first.every(({ token }, i) => token === second[i]!.token);
}

function shifted(by: number): (pair: [number, number]) => [number, number] {
  return ([i, j]) => [i + by, j + by];
}

/** The pairs of a longest common subsequence. */
function common(rows: number, columns: number, same: (i: number, j: number) => boolean): [number, number][] {
  // The length of the longest one of what follows row i and column j.
  const width = columns + 1;
  const lengths = new Uint16Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i--) {
    for (let j = columns - 1; j >= 0; j--) {
      const at = i * width + j;
      lengths[at] = same(i, j) ? lengths[at + width + 1]! + 1 : Math.max(lengths[at + width]!, lengths[at + 1]!);
    }
  }
  const pairs: [number, number][] = [];
  for (let i = 0, j = 0; i < rows && j < columns; ) {
    if (same(i, j)) pairs.push([i++, j++]);
    else if (lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!) i += 1;
    else j += 1;
  }
  return pairs;
}
