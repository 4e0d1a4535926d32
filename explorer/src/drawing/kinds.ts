/** What a head does mostly: where it has clearly more weight than uniform attention would have. */

import type { Overview } from "../data/overview.js";
import type { HeadId } from "../state/fields.js";
import { limitOf, statisticOf, uniformOf } from "./statistics.js";

export const KINDS = ["previous", "next", "self", "first", "last", "broad", "other"] as const;
export type Kind = (typeof KINDS)[number];

/** The share of its weight that a head has where it does mostly this, and how much more that is than uniform attention's. */
export const MOSTLY = 0.5;
export const STANDS_OUT = 0.2;
/** Of the largest entropy, what a broad head has. */
export const BROAD = 0.8;

/** The special tokens in two groups: those like the first of them, [CLS] say, and the others, [SEP]. */
export interface Specials {
  /** The tokens of each group, for names. */
  readonly names: readonly [first: string, last: string];
  /** Indices in rows and columns. */
  readonly groups: readonly [first: readonly number[], last: readonly number[]];
}

export function specialsOf({ kept }: Pick<Overview, "kept">): Specials {
  const special = kept.flatMap((unit, i) => (unit.special ? [i] : []));
  const token = (i: number) => kept[i]!.token;
  const first = special.filter((i) => token(i) === token(special[0]!));
  const last = special.filter((i) => token(i) !== token(special[0]!));
  const names = (all: readonly number[]) => [...new Set(all.map(token))].join(" ");
  return { names: [names(first), names(last)], groups: [first, last] };
}

/** The mean weight of a head's rows on each group. */
export type SpecialMass = (id: HeadId) => readonly [first: number, last: number];

export interface Doing {
  readonly kind: Kind;
  /** The weight there, and what uniform attention would have; NaN for broad and other. */
  readonly mass: number;
  readonly uniform: number;
}

/** What each head does mostly; without the weights on special tokens these are left out. */
export function doings(overview: Overview, mass: SpecialMass | null): (id: HeadId) => Doing {
  const { groups } = specialsOf(overview);
  const uniform = uniformOf(overview);
  const total = groups[0].length + groups[1].length;
  const most = limitOf("entropy", overview.kept.length) || 1;
  return (id) => {
    const special = mass === null ? [] : mass(id);
    const found: Doing[] = [
      ...(["previous", "next", "self"] as const).map((kind) => ({
        kind,
        mass: statisticOf(overview, kind, id),
        uniform: uniform[kind]!,
      })),
      ...special.map((own, i) => ({
        kind: KINDS[3 + i]!,
        mass: own,
        uniform: (uniform.special! * groups[i]!.length) / Math.max(total, 1),
      })),
    ];
    const above = ({ mass, uniform }: Doing) => mass - uniform || 0;
    const best = found.reduce((one, other) => (above(other) > above(one) ? other : one));
    if (best.mass >= MOSTLY && above(best) >= STANDS_OUT) return best;
    const broad = statisticOf(overview, "entropy", id) / most >= BROAD;
    return { kind: broad ? "broad" : "other", mass: Number.NaN, uniform: Number.NaN };
  };
}
