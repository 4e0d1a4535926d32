/** What the two texts of a pair give each other: the mass of every head from text to text. */

import { type LayerMaps, mapOf } from "./maps.js";
import type { Overview, Unit } from "./overview.js";
import { fitsWhole } from "./requests.js";

/** In the order of a block: from the first text to itself and to the second, then from the second. */
export const BLOCKS = ["aa", "ab", "ba", "bb"] as const;
export type Block = (typeof BLOCKS)[number];

/**
 * For each map of a layer the four blocks, (H, 4): the mean over the rows of a text of the sum of their weights on
 * a text. Special tokens belong to neither, so that the rest of a row is what it gives to them. A text without
 * tokens has no mean: NaN.
 */
export function blocksOf(maps: LayerMaps, kept: readonly Unit[]): Float32Array {
  // 0 and 1 are the texts, 2 is neither.
  const owner = Uint8Array.from(kept, ({ special, segment }) => (special ? 2 : segment));
  const rows = [0, 1].map((text) => owner.filter((own) => own === text).length);
  const { heads, size } = maps;
  const blocks = new Float32Array(4 * heads.length);
  heads.forEach((head, map) => {
    const weights = mapOf(maps, head);
    const sums = new Float64Array(9);
    for (let query = 0, at = 0; query < size; query++) {
      const from = 3 * owner[query]!;
      for (let key = 0; key < size; key++, at++) sums[from + owner[key]!]! += weights[at]!;
    }
    for (let i = 0; i < 4; i++) blocks[4 * map + i] = sums[3 * (i >> 1) + (i & 1)]! / rows[i >> 1]!;
  });
  return blocks;
}

/** Whether a weight is of a block: from a token of its first text to one of its second. */
export function isIn(block: Block, query: Unit, key: Unit): boolean {
  const own = ({ special, segment }: Unit) => (special ? "" : "ab"[segment]);
  return own(query) === block[0] && own(key) === block[1];
}

/** A map (N, N) with 0 outside a block. */
export function onlyBlock(map: Float32Array, kept: readonly Unit[], block: Block): Float32Array {
  return map.map((weight, i) =>
    isIn(block, kept[Math.floor(i / kept.length)]!, kept[i % kept.length]!) ? weight : 0,
  );
}

/** Why an input has no blocks, in a sentence; null if it has them. */
export function withoutBlocks({ subject, tokens, heads }: Overview, limit: number): string | null {
  if (subject.pair === null) return "Add a second text: this view shows how much two texts look at each other.";
  if (subject.weights === "score") return "Scores do not add up to a mass. Choose another kind of weights.";
  if (fitsWhole(tokens, heads, limit)) return null;
  return `The blocks need whole maps, which are too large for ${tokens.toLocaleString("en")} tokens. Enter shorter texts.`;
}
