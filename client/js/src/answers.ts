/**
 * The parsed items of a response: numbers in typed arrays, the rest as in JSON.
 *
 * N tokens, L layers, H heads, Q queries, K keys, C hidden size. Indices count from 0. Offsets count Unicode code
 * points, of which a string of JavaScript has fewer than `length` if it has emoji: `Array.from(text).slice(…)`.
 */

import { columns, flat, floats, integers, Tensor, type Numbers } from "./arrays.js";
import type { Column } from "./fields.js";

/** A sentence vector: of integers with a `precision`. */
export type Vector = Float32Array | Int8Array | Uint8Array;
/** From `start` up to but not including `end`. */
export type Span = [start: number, end: number];
export type Axis = "layer" | "head" | "query" | "key" | "edge";
/** An item of a response, its numbers as lists in JSON, or as tensors of a file. */
export type Json = Record<string, any>;

/** How to read the items of a response. */
export interface Reading {
  readonly axes: readonly Axis[];
  readonly scale: number;
  readonly precision: string;
}

export const AXES: readonly Axis[] = ["layer", "head", "query", "key"];
const COLUMNS: readonly Column[] = ["tokens", "token_ids", "offsets", "word_ids", "segment_ids", "special"];
/** The list of an item that says what the indices of an axis are. */
export const LABELS = { layer: "layers", head: "heads", query: "queries", key: "keys", edge: "edges" } as const;
const SUMMARY = "summary.";

/** The items of a call in the order of its inputs, of `rerank` the best first. */
export class Answer<T> implements Iterable<T> {
  constructor(
    readonly model: string,
    readonly items: readonly T[],
    readonly usage: { readonly input_tokens: number },
    /** A bound of the error that a smaller `dtype` added to any number; null if the response has none. */
    readonly maxError: number | null,
    /** One id for each request of the call, to find in the service's log. */
    readonly requestIds: readonly string[],
    /** How texts were ranked: "cross-encoder", "late-interaction", "bi-encoder" or "hybrid"; or explained. */
    readonly method: string | null,
  ) {}

  get length(): number {
    return this.items.length;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.items[Symbol.iterator]();
  }

  /** The item of an input; negative numbers count from the end. */
  at(index: number): T | undefined {
    return this.items.at(index);
  }

  /** All sentence vectors, (texts, dimensions). Throws an Error if there are none. */
  get embeddings(): Tensor<Vector> {
    const vectors = this.items.map((item) => (item as Partial<Tokens>).embedding);
    const [first] = vectors;
    if (!first || !vectors.every((vector) => vector)) {
      throw new Error('The response has no sentence vectors: use outputs: ["sentence"].');
    }
    const all = new (first.constructor as new (length: number) => Vector)(vectors.length * first.length);
    vectors.forEach((vector, i) => all.set(vector as Vector, i * first.length));
    return new Tensor(all, [vectors.length, first.length]);
  }
}

/** The tokens that ran for one input, in columns of length N. */
export interface Tokens {
  /** The index of the input. */
  index: number;
  tokens: string[];
  token_ids: number[];
  /** In Unicode code points; [0, 0] for special and prompt tokens. */
  offsets: Span[];
  /** Counted from 0 in each text of a pair; null for special and prompt tokens. */
  word_ids: (number | null)[];
  /** The text of a pair that each token belongs to, 0 or 1. */
  segment_ids: number[];
  /** Whether the tokenizer added the token. */
  special: boolean[];
  truncated: boolean;
  /** Tokens before truncation. */
  original_length: number;
  /** What was read of a truncated text, or of both of a pair, in Unicode code points. */
  covered: Span[] | null;
  /** The sentence vector, with "sentence" in `outputs`. */
  embedding: Vector | null;
  /** (layers, N, C), with "tokens" in `outputs`. */
  token_embeddings: Tensor | null;
}

/** An item of a call with `columns`: those that it does not name are null. */
export type SomeColumns<T extends Tokens> = Omit<T, Column> & { [name in Column]: T[name] | null };

/** Vectors of parts of a text. */
export interface Chunks {
  /** (chunks, dimensions) */
  embeddings: Tensor<Vector>;
  /** In Unicode code points. */
  offsets: Span[];
  /** The tokens of each chunk. */
  token_spans: Span[];
  /** The tokens that were read together, of a text longer than the model reads. */
  windows: Span[] | null;
}

/** Weights of words of the vocabulary, or of learned features, largest first. */
export interface SparseVector {
  token_ids: number[];
  tokens: string[];
  weights: Float32Array;
}

/** The words that hidden states predict: of each layer and position the k largest, largest first. */
export interface LogitLens {
  /** L hidden states: 0 is the output of the embedding layer. */
  layers: number[];
  /** P positions of tokens. */
  positions: number[];
  /** The words, in the shape of their ids. */
  tokens: string[][][];
  /** (L, P, k), like all below. */
  token_ids: Tensor<Int32Array>;
  logits: Tensor;
  /** The softmax over the whole vocabulary. */
  probabilities: Tensor;
}

/** The vectors of one input. */
export interface Encoded extends Tokens {
  chunks: Chunks | null;
  /** With "sparse" in `outputs`. */
  sparse: SparseVector | null;
  /** With "logit_lens" in `outputs`. */
  logit_lens: LogitLens | null;
  /** With `role`: the tokens that have a vector, one each in `token_embeddings` unless `token_clusters`. */
  token_rows: number[] | null;
  /** Where vectors are pooled: for each of `token_rows` the row of `token_embeddings` that it is part of. */
  token_clusters: number[] | null;
}

/** The maps of one input. `axes` names the axes of the arrays; `layers` to `keys` label their indices. */
export interface AttentionMaps extends Tokens {
  axes: readonly Axis[];
  layers: number[] | null;
  heads: number[] | null;
  queries: number[] | null;
  keys: number[] | null;
  /** With `edges`, in the place of `queries` and `keys`: [query, key] of each weight. */
  edges: [query: number, key: number][] | null;
  /**
   * (L, H, Q, K), with `edges` (L, H, E), without the axes that were aggregated; null with `top_k`, `thumbnail` and
   * `maps: false`.
   */
  attention: Tensor | null;
  /** With `top_k`, k columns for K: positions in the whole input, the largest weight first. */
  top_keys: Tensor<Int32Array> | null;
  top_weights: Tensor | null;
  /** The rest of each row's weight, without the last axis. */
  residual: Tensor | null;
  /** With `thumbnail`, the largest weight of each cell: at most k cells for Q, and for K. */
  thumbnails: Tensor | null;
  /** (L, H) each, with `summary`. */
  summary: Record<string, Tensor> | null;
  /** (L, H, Q, D), as scores compare them, with "query" in `outputs`. */
  query_vectors: Tensor | null;
  /** (L, H, K, D), with "key" in `outputs`; heads that share a key have it each. */
  key_vectors: Tensor | null;
  /** What scores multiply dot products of these vectors by. */
  score_scale: number | null;
  /** (L, H, Q): how long what a head adds to a token is, with "output_norm" in `outputs`. */
  output_norms: Tensor | null;
  /** With `level: "word"`. */
  words: string[] | null;
  word_offsets: Span[] | null;
}

/** Read an item of `/encode`. Like all that read items, it throws an Error for one that is not valid. */
export function encoded(item: Json, reading: Reading): Encoded {
  return {
    ...tokens(item, reading),
    chunks: chunks(item, reading),
    sparse: sparse(item),
    logit_lens: lens(item),
    token_rows: item.token_rows ?? null,
    token_clusters: item.token_clusters ?? null,
  };
}

/** Read an item of `/attention`. */
export function attentionMaps(item: Json, reading: Reading): AttentionMaps {
  const { axes, scale } = reading;
  const shape = axes.map((axis) => length(item, LABELS[axis]));
  const rows = shape.slice(0, -1);
  const weights = floats(item.top_weights, scale, item.top_weights && columns(rows, size(item.top_weights)));
  return {
    ...tokens(item, reading),
    axes,
    layers: item.layers ?? null,
    heads: item.heads ?? null,
    queries: item.queries ?? null,
    keys: item.keys ?? null,
    edges: item.edges ?? null,
    attention: floats(item.attention, scale, shape),
    top_keys: integers(item.top_keys, rows),
    top_weights: weights,
    residual: floats(item.residual, scale, rows),
    thumbnails: thumbnails(item, scale, shape),
    summary: summary(item),
    query_vectors: floats(item.query_vectors, scale),
    key_vectors: floats(item.key_vectors, scale),
    score_scale: item.score_scale ?? null,
    output_norms: floats(item.output_norms, scale),
    words: item.words ?? null,
    word_offsets: item.word_offsets ?? null,
  };
}

/** Read thumbnails; those of nothing have neither rows nor columns, which lists do not say. */
function thumbnails(item: Json, scale: number, shape: readonly number[]): Tensor | null {
  const empty = shape.at(-1) === 0 ? shape : undefined;
  return floats(item.thumbnails, scale, empty);
}

/** Read the fields that items of all routes have in common. */
export function tokens(item: Json, { scale, precision }: Reading): Tokens {
  const there = COLUMNS.filter((name) => item[name] !== undefined);
  for (const name of there) {
    if (length(item, name) !== item[there[0]!].length) throw new Error(`${name} has not one value for each token`);
  }
  return {
    index: item.index,
    tokens: item.tokens ?? null,
    token_ids: item.token_ids ?? null,
    offsets: item.offsets ?? null,
    word_ids: item.word_ids ?? null,
    segment_ids: item.segment_ids ?? null,
    special: item.special ?? null,
    truncated: item.truncated,
    original_length: item.original_length,
    covered: item.covered ?? null,
    embedding: vectors(item.embedding, precision)?.data ?? null,
    token_embeddings: floats(item.token_embeddings, scale),
  };
}

/** Read the chunks of an item: in a file their vectors are a tensor, and the rest is JSON. */
function chunks(item: Json, { precision }: Reading): Chunks | null {
  if (!item.chunks) return null;
  const { offsets, token_spans, windows = null } = item.chunks;
  const embeddings = vectors(item["chunks.embeddings"] ?? item.chunks.embeddings, precision);
  if (embeddings?.shape[0] !== offsets.length) throw new Error("chunks has not one vector for each");
  return { embeddings: embeddings as Tensor<Vector>, offsets, token_spans, windows };
}

function sparse(item: Json): SparseVector | null {
  if (!item.sparse) return null;
  const ids = item.sparse_ids instanceof Tensor ? Array.from(item.sparse_ids.data as Numbers) : item.sparse.token_ids;
  const weights = floats(item.sparse_weights ?? item.sparse.weights, 1) as Tensor;
  return { token_ids: ids, tokens: item.sparse.tokens, weights: weights.data };
}

function lens(item: Json): LogitLens | null {
  const found = item.logit_lens;
  if (!found) return null;
  return {
    ...found,
    token_ids: integers(item.lens_ids ?? found.token_ids, [found.layers.length, found.positions.length]),
    logits: floats(item.lens_logits ?? found.logits, 1),
    probabilities: floats(item.lens_probabilities ?? found.probabilities, 1),
  };
}

/** Read statistics, which JSON has in an object and a file in tensors named like `summary.entropy`. */
function summary(item: Json): Record<string, Tensor> | null {
  const found: [string, unknown][] = Object.entries(item.summary ?? {});
  for (const [name, value] of Object.entries(item)) {
    if (name.startsWith(SUMMARY)) found.push([name.slice(SUMMARY.length), value]);
  }
  const read = found.map(([name, value]) => [name, floats(value, 1) as Tensor]);
  return read.length === 0 ? null : (Object.fromEntries(read) as Record<string, Tensor>);
}

const STORED: Record<string, typeof Int8Array | typeof Uint8Array> = {
  int8: Int8Array,
  binary: Int8Array,
  uint8: Uint8Array,
  ubinary: Uint8Array,
};

/** Vectors in float32, or in the integers of their precision. */
function vectors(value: unknown, precision: string): Tensor<Vector> | null {
  const type = STORED[precision];
  if (type === undefined || value instanceof Tensor) return vectorTensor(value);
  if (value === undefined || value === null) return null;
  const [data, shape] = flat(value);
  return new Tensor<Vector>(type.from(data), shape);
}

function vectorTensor(value: unknown): Tensor<Vector> | null {
  return value instanceof Tensor ? (value as Tensor<Vector>) : floats(value, 1);
}

function size(value: unknown): number {
  return value instanceof Tensor ? (value.data as Numbers).length : flat(value)[0].length;
}

function length(item: Json, name: string): number {
  if (!Array.isArray(item[name])) throw new Error(`${name} is missing`);
  return item[name].length;
}
