/** Which tokens of two inputs stand for each other: by their place, or by the longest sequence that both have. */

import type { Overview, Unit } from "../../data/overview.js";

/** Positions of the one input by those of the other. */
export interface Alignment {
  readonly toSecond: ReadonlyMap<number, number>;
  readonly toFirst: ReadonlyMap<number, number>;
  /** Whether each token has the one at its own place. */
  readonly byPlace: boolean;
}

/** Rows and columns of two maps that stand for each other, P of each. */
export interface Aligned {
  /** Indices among the kept units of either input. */
  readonly first: readonly number[];
  readonly second: readonly number[];
  /** "lawyer/nurse" where they are not the same. */
  readonly labels: readonly string[];
  /** Kept units of either input that stand for none. */
  readonly left: readonly [readonly Unit[], readonly Unit[]];
  readonly byPlace: boolean;
}

/** Of the table of two longer inputs the middle is left out, and their ends are compared alone. */
const LARGEST_TABLE = 1 << 21;

type Named = Pick<Unit, "token" | "segment"> & Partial<Pick<Unit, "label" | "special">>;

/**
 * Align two inputs: by place, if that is wanted and they have as many tokens; else by the tokens that both have, and
 * between two of those by place, where as many stand there in both.
 */
export function align(first: readonly Named[], second: readonly Named[], byPlace = true): Alignment {
  const alike = (i: number, j: number): boolean => first[i]!.segment === second[j]!.segment;
  const placed = byPlace && first.length === second.length && first.every((_, i) => alike(i, i));
  const pairs = placed
    ? first.map((_, i): Pair => [i, i])
    : filled(sequence(first, second), first.length, second.length).filter(([i, j]) => alike(i, j));
  return { toSecond: new Map(pairs), toFirst: new Map(pairs.map(([i, j]) => [j, i])), byPlace: placed };
}

/** Whether two inputs have the same tokens in the same places. */
export function sameTokens(first: readonly Named[], second: readonly Named[]): boolean {
  return first.length === second.length && first.every(({ token }, i) => token === second[i]!.token);
}

/** The rows and columns that two maps have in common. */
export function aligned(first: Overview, second: Overview, { toSecond, toFirst, byPlace }: Alignment): Aligned {
  const pairs = first.kept.flatMap(({ position }, i): Pair[] => {
    const j = second.indexOf.get(toSecond.get(position) ?? -1);
    return j === undefined ? [] : [[i, j]];
  });
  const labels = pairs.map(([i, j]) => {
    const [one, two] = [first.kept[i]!.label, second.kept[j]!.label];
    return one === two ? one : `${one}/${two}`;
  });
  const left = [
    first.kept.filter(({ position }) => !second.indexOf.has(toSecond.get(position) ?? -1)),
    second.kept.filter(({ position }) => !first.indexOf.has(toFirst.get(position) ?? -1)),
  ] as const;
  return { first: pairs.map(([i]) => i), second: pairs.map(([, j]) => j), labels, left, byPlace };
}

type Pair = [number, number];

/** Two models may write the same piece of a text in different ways, and call their special tokens by other names. */
function same(one: Named, two: Named): boolean {
  const name = ({ label, token }: Named) => (label ?? token).toLowerCase();
  return one.segment === two.segment && (one.token === two.token || name(one) === name(two) || isBoth(one, two));
}

function isBoth(one: Named, two: Named): boolean {
  return Boolean(one.special && two.special);
}

/** The pairs of the longest sequence of tokens that are the same, in order. */
function sequence(first: readonly Named[], second: readonly Named[]): Pair[] {
  const shorter = Math.min(first.length, second.length);
  let start = 0;
  while (start < shorter && same(first[start]!, second[start]!)) start += 1;
  let end = 0;
  while (end < shorter - start && same(first.at(-1 - end)!, second.at(-1 - end)!)) end += 1;
  const pairs: Pair[] = [];
  for (let i = 0; i < start; i++) pairs.push([i, i]);
  const [rows, columns] = [first.length - start - end, second.length - start - end];
  if (rows * columns <= LARGEST_TABLE) {
    const inner = common(rows, columns, (i, j) => same(first[start + i]!, second[start + j]!));
    pairs.push(...inner.map(([i, j]): Pair => [i + start, j + start]));
  }
  for (let i = end; i > 0; i--) pairs.push([first.length - i, second.length - i]);
  return pairs;
}

/** Add, where as many tokens stand between two pairs in both inputs, those by their order. */
function filled(pairs: readonly Pair[], rows: number, columns: number): Pair[] {
  let [row, column] = [0, 0];
  return [...pairs, [rows, columns] as Pair].flatMap(([i, j]) => {
    const gap = i - row === j - column ? i - row : 0;
    const between = Array.from({ length: gap }, (_, k): Pair => [i - gap + k, j - gap + k]);
    [row, column] = [i + 1, j + 1];
    return i < rows ? [...between, [i, j] as Pair] : between;
  });
}

/** The pairs of a longest common subsequence. */
function common(rows: number, columns: number, alike: (i: number, j: number) => boolean): Pair[] {
  // The length of the longest one of what follows row i and column j.
  const width = columns + 1;
  const lengths = new Uint16Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i--) {
    for (let j = columns - 1; j >= 0; j--) {
      const at = i * width + j;
      lengths[at] = alike(i, j) ? lengths[at + width + 1]! + 1 : Math.max(lengths[at + width]!, lengths[at + 1]!);
    }
  }
  const pairs: Pair[] = [];
  for (let i = 0, j = 0; i < rows && j < columns; ) {
    if (alike(i, j)) pairs.push([i++, j++]);
    else if (lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!) i += 1;
    else j += 1;
  }
  return pairs;
}
