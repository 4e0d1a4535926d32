/** The map that a matrix shows: a whole one, or of a long input an overview of it and the window that is looked at. */

import type { AttentionMaps } from "../../../../client/js/src/index.js";
import type { Loaded } from "../../data/loader.js";
import { mapOf } from "../../data/maps.js";
import type { Overview } from "../../data/overview.js";
import { fitsWhole } from "../../data/requests.js";
import { rangeOf } from "../../drawing/colours.js";
import { type Margins, marginsOf } from "../../drawing/margins.js";
import type { HeadId } from "../../state/fields.js";
import type { Store } from "../../state/store.js";

/** A part of the map; where each pixel is one cell it has its weights. */
export interface Piece {
  /** (rows, columns) */
  readonly weights: Float32Array;
  readonly rows: number;
  readonly columns: number;
  /** The cells that it covers. */
  readonly top: number;
  readonly left: number;
  readonly height: number;
  readonly width: number;
}

export interface Shown {
  readonly size: number;
  /** Drawn in this order. */
  readonly pieces: readonly Piece[];
  readonly range: readonly [low: number, high: number];
  /** Null unless the map is there as a whole and its rows are shares of something. */
  readonly margins: Margins | null;
  readonly whole: boolean;
  readonly error: Error | null;
}

/** Rows and columns of a window, as indices of kept units. */
export interface Area {
  readonly rows: readonly [first: number, end: number];
  readonly columns: readonly [first: number, end: number];
}

/** Cells of the overview of a long input, at each side. */
const OVERVIEW = 256;
/** Windows begin and end at multiples of this. */
export const TILE = 128;
/** The largest side of a window. */
export const LARGEST_WINDOW = 768;

export function isWhole(store: Store, overview: Overview): boolean {
  return fitsWhole(overview.tokens, overview.heads, store.limit.value);
}

/** The current head of the model that is shown: another may be loading. */
export function currentOf(store: Store, overview: Overview): HeadId {
  return store.headsOf(overview).at(-1)!;
}

/** The current head as a whole. */
export function wholeMap(store: Store, overview: Overview): Shown {
  const [layer, head] = currentOf(store, overview);
  const size = overview.kept.length;
  const maps = store.loader.layer(overview.subject, layer).value;
  if (maps.state !== "ready") return nothing(size, true, maps);
  const signed = overview.subject.weights === "score";
  const weights = mapOf(maps.value, head);
  return {
    size,
    pieces: [{ weights, rows: size, columns: size, top: 0, left: 0, height: size, width: size }],
    range: rangeOf(weights, signed),
    margins: signed ? null : marginsOf(weights, size),
    whole: true,
    error: null,
  };
}

/** The current head of a long input: all of it roughly, and an area exactly. */
export function windowMap(store: Store, overview: Overview, area: Area | null): Shown {
  const { subject, kept } = overview;
  const [layer, head] = currentOf(store, overview);
  const size = kept.length;
  // Rollout is made of all heads.
  const chosen = { layers: [layer], ...(subject.weights === "rollout" ? {} : { heads: [head] }) };
  const rough = store.loader.part(subject, { ...chosen, thumbnail: OVERVIEW, dtype: "float16" }).value;
  if (rough.state !== "ready") return nothing(size, false, rough);
  const weights = rough.value.thumbnails!.data;
  const side = Math.round(Math.sqrt(weights.length));
  const pieces: Piece[] = [{ weights, rows: side, columns: side, top: 0, left: 0, height: size, width: size }];
  let error: Error | null = null;
  if (area !== null) {
    const [queries, keys] = [area.rows, area.columns].map(([first, end]) =>
      kept.slice(first, end).map(({ position }) => position),
    );
    const part = store.loader.part(subject, { ...chosen, queries: queries!, keys: keys!, dtype: "float16" }).value;
    if (part.state === "ready") pieces.push(pieceOf(part.value, area));
    if (part.state === "failed") error = part.error;
  }
  return { size, pieces, range: rangeOf(weights, subject.weights === "score"), margins: null, whole: false, error };
}

/** The weight of a cell, if a piece has it exactly. */
export function weightAt({ pieces }: Shown, row: number, column: number): number | null {
  for (const piece of [...pieces].reverse()) {
    const { top, left, height, width, rows, columns, weights } = piece;
    const [y, x] = [row - top, column - left];
    if (rows !== height || columns !== width || y < 0 || x < 0 || y >= rows || x >= columns) continue;
    return weights[y * columns + x]!;
  }
  return null;
}

function pieceOf(item: AttentionMaps, { rows, columns }: Area): Piece {
  const [height, width] = [rows[1] - rows[0], columns[1] - columns[0]];
  const weights = item.attention!.data;
  return { weights, rows: height, columns: width, top: rows[0], left: columns[0], height, width };
}

function nothing(size: number, whole: boolean, loaded: Loaded<unknown>): Shown {
  const error = loaded.state === "failed" ? loaded.error : null;
  return { size, pieces: [], range: [0, 0], margins: null, whole, error };
}
