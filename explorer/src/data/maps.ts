/** Maps of a layer in memory, and rows and columns of them. */

import { fromFloat16 } from "../../../client/js/src/arrays.js";
import type { AttentionMaps } from "../../../client/js/src/index.js";
import type { Direction } from "./requests.js";

/** H heads, N rows and as many columns: those of the overview's `kept`. */
export interface LayerMaps {
  /** Which heads these are; rollout is one map, called -1. */
  readonly heads: readonly number[];
  readonly size: number;
  /** (H, N, N) in row-major order: a row is a query. In half precision, as they came: decoded where they are read. */
  readonly halves: Uint16Array;
}

/** A row, or a column, of each head. */
export interface Rows {
  readonly heads: readonly number[];
  readonly size: number;
  /** (H, N) */
  readonly weights: Float32Array;
}

/** What says which weights an item has. */
export type Labels = Pick<AttentionMaps, "axes" | "heads" | "keys">;

/** The head of a map that is not of one head. */
export const ALL_HEADS = -1;

export function readLayer(item: Labels, halves: Uint16Array): LayerMaps {
  return { heads: headsOf(item), size: item.keys!.length, halves };
}

/** Read an answer with one row, or with one column. */
export function readRows(item: AttentionMaps): Rows {
  const { data } = item.attention!;
  const heads = headsOf(item);
  return { heads, size: data.length / heads.length, weights: data };
}

/** One row of a head, or one column, (N,). */
export function rowOf(
  { heads, size, halves }: LayerMaps,
  head: number,
  index: number,
  direction: Direction,
): Float32Array {
  const start = slot(heads, head) * size ** 2;
  if (direction === "from") return fromFloat16(halves.subarray(start + index * size, start + (index + 1) * size));
  const column = new Uint16Array(size);
  for (let query = 0; query < size; query++) column[query] = halves[start + query * size + index]!;
  return fromFloat16(column);
}

/** The map of a head, (N, N). */
export function mapOf({ heads, size, halves }: LayerMaps, head: number): Float32Array {
  const start = slot(heads, head) * size ** 2;
  return fromFloat16(halves.subarray(start, start + size ** 2));
}

/** The row of a head, (N,). */
export function rowAmong({ heads, size, weights }: Rows, head: number): Float32Array {
  const start = slot(heads, head) * size;
  return weights.subarray(start, start + size);
}

/** The index of a head: a map that is not of one head stands for all of them. */
function slot(heads: readonly number[], head: number): number {
  if (heads[0] === ALL_HEADS) return 0;
  const index = heads.indexOf(head);
  if (index < 0) throw new RangeError(`Head ${head} is not among those loaded: ${heads.join(", ")}.`);
  return index;
}

function headsOf({ axes, heads }: Labels): number[] {
  return axes.includes("head") ? heads! : [ALL_HEADS];
}
