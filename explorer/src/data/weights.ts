/** The weights of tokens in the chosen heads: the mean over heads, summed over tokens. Rows come before maps. */

import type { HeadId } from "../state/fields.js";
import type { Loaded, Loader } from "./loader.js";
import { rowAmong, rowOf } from "./maps.js";
import type { Overview } from "./overview.js";
import type { Direction } from "./requests.js";

/** Maps of a layer with at most this many numbers arrive as fast as a row. */
const SMALL = 1 << 18;

export interface Wanted {
  readonly heads: readonly HeadId[];
  readonly positions: readonly number[];
  readonly direction: Direction;
  /** Whether layers may be loaded whole, which makes all that follows immediate. */
  readonly whole: boolean;
  /** Whether to ask for rows while a layer is on its way. */
  readonly rows: boolean;
}

/** The weights of tokens by their positions, (N,) over the overview's `kept`. */
export function weightsOf(loader: Loader, overview: Overview, wanted: Wanted): Loaded<Float32Array> {
  const total = new Float32Array(overview.kept.length);
  // Rollout is one map of all heads.
  const heads = overview.subject.weights === "rollout" ? wanted.heads.slice(-1) : wanted.heads;
  let waiting = false;
  for (const [layer, head] of heads) {
    for (const position of wanted.positions) {
      const row = headRow(loader, overview, layer, head, position, wanted);
      if (row.state === "failed") return row;
      if (row.state === "loading") waiting = true;
      else add(total, row.value, 1 / heads.length);
    }
  }
  return waiting ? { state: "loading" } : ready(total);
}

/** The weights of one token in one head, (N,). */
export function headRow(
  loader: Loader,
  { subject, kept, heads, indexOf }: Overview,
  layer: number,
  head: number,
  position: number,
  { direction, whole, rows }: Pick<Wanted, "direction" | "whole" | "rows">,
): Loaded<Float32Array> {
  if (whole) {
    const maps = loader.layer(subject, layer).value;
    if (maps.state === "ready") return ready(rowOf(maps.value, head, indexOf.get(position)!, direction));
    if (maps.state === "failed" || !rows || heads * kept.length ** 2 <= SMALL) return maps;
  }
  const row = loader.row(subject, layer, position, direction).value;
  return row.state === "ready" ? ready(rowAmong(row.value, head)) : row;
}

function ready<T>(value: T): Loaded<T> {
  return { state: "ready", value };
}

function add(total: Float32Array, row: Float32Array, factor: number): void {
  for (let i = 0; i < total.length; i++) total[i] = total[i]! + factor * row[i]!;
}
