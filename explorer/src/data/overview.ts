/** The first answer about an input: its tokens or words, the statistics of every head, and thumbnails. */

import type { AttentionMaps, Statistic, Tensor } from "../../../client/js/src/index.js";
import type { Subject } from "./requests.js";

/** A token, or at word level a word. */
export interface Unit {
  /** In the whole input, special tokens included. */
  readonly position: number;
  /** The position of its first token: at word level there are more tokens than words. */
  readonly first: number;
  /** The piece of the text; for special and prompt tokens the token. */
  readonly label: string;
  /** What the model read. */
  readonly token: string;
  /** Whether white space stands before it in the text. */
  readonly spaced: boolean;
  /** Whether a line break stands before it. */
  readonly broken: boolean;
  readonly segment: number;
  readonly special: boolean;
}

export interface Overview {
  readonly subject: Subject;
  /** All of the input, those that were dropped too. */
  readonly units: readonly Unit[];
  /** Those that have rows and columns. */
  readonly kept: readonly Unit[];
  /** The index of each kept position in rows and columns. */
  readonly indexOf: ReadonlyMap<number, number>;
  /** (layers, heads) each. */
  readonly summary: Readonly<Record<Statistic, Tensor>>;
  /** (layers, heads, ≤ 64, ≤ 64), the largest of each cell; null for long inputs. */
  readonly thumbnails: Tensor | null;
  readonly layers: number;
  readonly heads: number;
  /** Tokens that ran. */
  readonly tokens: number;
  readonly truncated: boolean;
  readonly originalLength: number;
  /** From the request to the answer. */
  readonly ms: number;
}

/** Read the answer's item. */
export function readOverview(subject: Subject, item: AttentionMaps, ms: number): Overview {
  const units = unitsOf(item, subject);
  const kept = units.filter(({ special }) => subject.special === "keep" || !special);
  return {
    subject,
    units,
    kept,
    indexOf: new Map(kept.map(({ position }, index) => [position, index])),
    summary: item.summary as Record<Statistic, Tensor>,
    thumbnails: item.thumbnails,
    layers: subject.model.layers,
    heads: subject.model.heads,
    tokens: item.tokens.length,
    truncated: item.truncated,
    originalLength: item.original_length,
    ms,
  };
}

type Columns = Pick<
  AttentionMaps,
  "tokens" | "offsets" | "word_ids" | "segment_ids" | "special" | "words" | "word_offsets"
>;

/** The tokens or words of an input, each with its piece of the text. */
export function unitsOf(item: Columns, { text, pair }: Pick<Subject, "text" | "pair">): Unit[] {
  // Offsets count code points, of which a character outside the basic plane has one.
  const texts = [Array.from(text), Array.from(pair ?? "")];
  const firsts = item.words === null ? item.tokens.map((_, i) => i) : wordStarts(item);
  const spans = item.words === null ? item.offsets : item.word_offsets!;
  const ends = [0, 0];
  return firsts.map((first, position) => {
    const segment = item.segment_ids[first]!;
    const [start, end] = spans[position]!;
    const token = item.words?.[position] ?? item.tokens[first]!;
    const own = end > start && item.word_ids[first] !== null;
    const before = own ? texts[segment]!.slice(ends[segment], start).join("") : "";
    // Pieces of one character share its place in the text: only the first of them stands for it.
    const repeats = own && start < ends[segment]!;
    if (own) ends[segment] = end;
    return {
      position,
      first,
      token,
      label: own && !repeats ? texts[segment]!.slice(start, end).join("") : bare(token),
      spaced: /\s/.test(before) || !own,
      broken: before.includes("\n"),
      segment,
      special: item.special[first]!,
    };
  });
}

/** The first token of each word: special tokens and those of a prompt are words of their own. */
function wordStarts({ word_ids, segment_ids }: Columns): number[] {
  const starts: number[] = [];
  word_ids.forEach((word, i) => {
    const same = i > 0 && word !== null && word === word_ids[i - 1] && segment_ids[i] === segment_ids[i - 1];
    if (!same) starts.push(i);
  });
  return starts;
}

/** A token without the marks that tokenizers put before pieces. */
function bare(token: string): string {
  return token.replace(/^(?:##|[▁Ġ])(?=.)/u, "");
}
