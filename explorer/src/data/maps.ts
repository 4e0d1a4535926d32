/** Maps of a layer in memory, and rows and columns of them. */

import type { AttentionMaps } from "../../../client/js/src/index.js";
import type { Direction } from "./requests.js";

/** H heads, N rows and as many columns: those of the overview's `kept`. */
export interface LayerMaps {
  /** Which heads these are; rollout is one map, called -1. */
  readonly heads: readonly number[];
  readonly size: number;
  /** (H, N, N) in row-major order: a row is a query. */
  readonly weights: Float32Array;
}

/** A row, or a column, of each head. */
export interface Rows {
  readonly heads: readonly number[];
  readonly size: number;
  /** (H, N) */
  readonly weights: Float32Array;
}

/** The head of a map that is not of one head. */
export const ALL_HEADS = -1;

export function readLayer(item: AttentionMaps): LayerMaps {
  const { data } = item.attention!;
  return { heads: headsOf(item), size: item.keys!.length, weights: data };
}

/** Read an answer with one row, or with one column. */
export function readRows(item: AttentionMaps): Rows {
  const { data } = item.attention!;
  const heads = headsOf(item);
  return { heads, size: data.length / heads.length, weights: data };
}

/** One row of a head, or one column, (N,). A row shares memory with the maps. */
export function rowOf(
  { heads, size, weights }: LayerMaps,
  head: number,
  index: number,
  direction: Direction,
): Float32Array {
  const start = slot(heads, head) * size ** 2;
  if (direction === "from") return weights.subarray(start + index * size, start + (index + 1) * size);
  const column = new Float32Array(size);
  for (let query = 0; query < size; query++) column[query] = weights[start + query * size + index]!;
  return column;
}

/** The map of a head, (N, N), in the memory of the layer. */
export function mapOf({ heads, size, weights }: LayerMaps, head: number): Float32Array {
  const start = slot(heads, head) * size ** 2;
  return weights.subarray(start, start + size ** 2);
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

function headsOf({ axes, heads }: AttentionMaps): number[] {
  return axes.includes("head") ? heads! : [ALL_HEADS];
}
