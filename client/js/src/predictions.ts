/** The parsed items of `/predict`, `/rerank` and `/decode`. */

import { floats } from "./arrays.js";
import {
  Answer, attentionMaps, tokens, type AttentionMaps, type Json, type Reading, type Span, type Tokens,
} from "./answers.js";

export interface Label {
  label: string;
  score: number;
}

/** A labelled part of a text, in Unicode code points of text `segment` of a pair. */
export interface Entity {
  label: string;
  score: number;
  start: number;
  end: number;
  text: string;
  segment: number;
}

/** What a model predicts of one input: of the whole text, of its tokens, or of parts of it. */
export interface Predicted extends Tokens {
  /** The classes of the text, largest score first. */
  labels: Label[] | null;
  /** The class of each token. */
  token_labels: string[] | null;
  /** (N,): the score of each token's class. */
  token_scores: Float32Array | null;
  /** Tokens of one class joined, with `aggregation`. */
  entities: Entity[] | null;
  /** With `attention`: that of the same pass. */
  maps: AttentionMaps | null;
}

/** One text and its score. */
export interface Ranked {
  /** The place of the text among the texts of the call. */
  index: number;
  score: number;
  /** With `return_texts`. */
  text: string | null;
  truncated: boolean;
  /** Tokens before truncation. */
  original_length: number;
  /** What was read of a truncated text, or of both of a pair, in Unicode code points. */
  covered: Span[] | null;
  /** With `attention`: that of the query and the text. */
  maps: AttentionMaps | null;
}

export function predicted(item: Json, reading: Reading): Predicted {
  return {
    ...tokens(item, reading),
    labels: item.labels ?? null,
    token_labels: item.token_labels ?? null,
    token_scores: floats(item.token_scores, 1)?.data ?? null,
    entities: item.entities ?? null,
    maps: maps(item, reading),
  };
}

export function ranked(item: Json, reading: Reading): Ranked {
  if (typeof item.score !== "number") throw new Error("score is missing");
  return {
    index: item.index,
    score: item.score,
    text: item.text ?? null,
    truncated: item.truncated,
    original_length: item.original_length,
    covered: item.covered ?? null,
    maps: maps(item, reading),
  };
}

export function decoded(item: Json): string {
  if (typeof item.text !== "string") throw new Error("text is missing");
  return item.text;
}

/** Join the answers to the parts of a call: the best of all texts first, ties by index. */
export function best(whole: Answer<Ranked>, topN: number | undefined): Answer<Ranked> {
  const items = [...whole].sort((a, b) => b.score - a.score || a.index - b.index).slice(0, topN);
  return new Answer(whole.model, items, whole.usage, whole.maxError, whole.requestIds, whole.method);
}

function maps(item: Json, reading: Reading): AttentionMaps | null {
  return item.layers === undefined ? null : attentionMaps(item, reading);
}
