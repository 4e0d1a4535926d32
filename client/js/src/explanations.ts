/** The parsed items of `/explain`. */

import { floats, Tensor } from "./arrays.js";
import { tokens, type Json, type Reading, type Span, type Tokens } from "./answers.js";

/** The words, sentences or tokens that an explanation speaks of: those of the first text come first. */
export interface Units {
  /** For special and prompt tokens, the token; "bias" for what layers after the pooling add. */
  text: string[];
  /** In Unicode code points; [0, 0] for special and prompt tokens. */
  offsets: Span[];
  /** The text of a pair that each unit is of, 0 or 1. */
  segment: number[];
  /** The tokens of each unit. */
  token_spans: Span[];
}

/** What makes the score of one input: one of `parts`, `attributions` and `heads` is there, by the method. */
export interface Explained extends Tokens {
  /** A similarity, or a logit. */
  score: number;
  /** How the two texts are compared. */
  function: string | null;
  /** The label whose logit it is. */
  label: string | null;
  /** The position of the token that has the label. */
  token: number | null;
  /** The score of the label in `predict`. */
  probability: number | null;
  /** Of a cross-encoder's logit. */
  sigmoid: number | null;
  /** What the tokens of a unit became: "mask", or "remove". */
  replacement: string | null;
  /** With the method "gradient": the token in the place of those of the texts, "mask" or "padding". */
  baseline: string | null;
  /** The score of the baseline; of two texts that run apart, one of each, beside the whole other text. */
  baseline_scores: readonly number[] | null;
  /** What `attributions` miss of `score` less each of `baseline_scores`, added up. */
  residual: number | null;
  /** Null with the method "heads". */
  units: Units | null;
  /** (units of the first text, units of the second), with the sum `score`. */
  parts: Tensor | null;
  /** (units,): `score` less the score without the unit; with "gradient", what it adds to the baseline's. */
  attributions: Float32Array | null;
  /** (layers, heads): `score` less the score without the head. */
  heads: Tensor | null;
  /** With `faithfulness`: `comprehensiveness` and `sufficiency` for each of `shares`, and of random units. */
  faithfulness: Record<string, Float32Array> | null;
}

/** Read an item of `/explain`; throws an Error for one whose arrays do not match its units. */
export function explained(item: Json, reading: Reading): Explained {
  if (typeof item.score !== "number") throw new Error("score is missing");
  const units: Units | null = item.units ?? null;
  const [parts, attributions, heads] = [item.parts, item.attributions, item.heads].map((array) => floats(array, 1));
  const counted = (parts?.shape ?? []).reduce((a, b) => a + b, 0) + (attributions?.data.length ?? 0);
  if (counted !== (units?.text.length ?? 0)) throw new Error("its arrays do not have the shapes that its units say");
  return {
    ...tokens(item, reading),
    score: item.score,
    function: item.function ?? null,
    label: item.label ?? null,
    token: item.token ?? null,
    probability: item.probability ?? null,
    sigmoid: item.sigmoid ?? null,
    replacement: item.replacement ?? null,
    baseline: item.baseline ?? null,
    baseline_scores: item.baseline_scores ?? null,
    residual: item.residual ?? null,
    units: units && {
      text: units.text,
      offsets: units.offsets,
      segment: units.segment,
      token_spans: units.token_spans,
    },
    parts: parts ?? null,
    attributions: attributions?.data ?? null,
    heads: heads ?? null,
    faithfulness: faithfulness(item),
  };
}

function faithfulness(item: Json): Record<string, Float32Array> | null {
  if (item.faithfulness === undefined) return null;
  const columns = Object.entries(item.faithfulness as Record<string, number[]>);
  return Object.fromEntries(columns.map(([name, values]) => [name, Float32Array.from(values)]));
}
