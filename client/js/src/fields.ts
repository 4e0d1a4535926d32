/** The fields of requests, named as in the API (docs/api.md). What is left out has the service's default. */

export type Pair = readonly [string, string];
/** A text, or any number of texts or of pairs of texts. */
export type Inputs = string | Iterable<string> | Iterable<Pair>;
/** The ids of one text, or of several. */
export type TokenIds = ArrayLike<number> | Iterable<ArrayLike<number>>;

export type Pooling = "mean" | "cls" | "max" | "mean_max" | "mean_sqrt_len" | "weighted_mean" | "last";
export type Precision = "float32" | "int8" | "uint8" | "binary" | "ubinary";
export type Side = "right" | "left";
export type Weights = "probability" | "score" | "value_norm";
export type Aggregate = "none" | "mean" | "max" | "rollout";
export type Aggregation = "none" | "simple" | "first" | "average" | "max";
export type Method = "parts" | "occlusion" | "heads" | "gradient";
export type Unit = "token" | "word" | "sentence";
export type Replacement = "mask" | "remove";
export type SimilarityFunction = "cosine" | "dot" | "euclidean" | "manhattan";
export type Statistic =
  | "entropy"
  | "confidence"
  | "mean_distance"
  | "self"
  | "previous"
  | "next"
  | "special"
  | "argmax_self"
  | "argmax_previous"
  | "argmax_next";
/** What an item says of each of its tokens. */
export type Column = "tokens" | "token_ids" | "offsets" | "word_ids" | "segment_ids" | "special";
/** Sentences, windows of tokens, or `[start, end]` in Unicode code points of a single text. */
export type ChunksField =
  | "sentences"
  | { readonly tokens: number; readonly overlap?: number }
  | readonly (readonly [number, number])[];

/** A query and a key, by position. */
export type Edge = readonly [query: number, key: number];

/** What is changed in the run of every text (docs/explain.md). */
export type Intervention =
  | {
      readonly kind: "heads";
      readonly layer: number;
      readonly heads: "all" | readonly number[];
      readonly scale?: number;
      readonly mean?: boolean;
    }
  | {
      readonly kind: "edges";
      readonly layers: "all" | readonly number[];
      readonly heads: "all" | readonly number[];
      readonly queries: "all" | readonly number[];
      readonly keys: "all" | readonly number[];
    }
  | {
      readonly kind: "states";
      readonly layer: number;
      readonly tokens: "all" | readonly number[];
      /** Numbers, or little-endian float32 in base64. */
      readonly vector: readonly number[] | string;
      readonly add?: boolean;
    };

/** What every call takes besides the fields of its request. */
export interface CallOptions {
  /** Cancels the call and its requests in flight; the call then throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** The fields of all routes on which a model reads texts. */
export interface TextFields {
  model?: string;
  truncate?: boolean;
  truncation_side?: Side;
}

export interface PromptFields extends TextFields {
  prompt_name?: string;
  prompt?: string;
}

export interface TaskFields extends PromptFields {
  task?: string;
}

export interface InterventionFields {
  interventions?: readonly Intervention[];
}

/** Which columns an item has; all by default. */
export interface ColumnFields {
  columns?: readonly Column[];
}

export interface VectorFields {
  pooling?: Pooling;
  normalize?: boolean;
  dimensions?: number;
}

/** The fields of `POST /encode` besides its inputs. */
export interface EncodeFields extends TaskFields, VectorFields, ColumnFields, InterventionFields {
  outputs?: readonly ("sentence" | "tokens" | "sparse" | "logit_lens")[];
  pooling_layers?: readonly number[];
  layers?: "all" | readonly number[];
  positions?: "all" | readonly number[];
  precision?: Precision;
  chunks?: ChunksField;
  /** Of texts longer than the model reads: the tokens that each window repeats of the one before. */
  overlap?: number;
  role?: "query" | "document";
  top_k?: number;
}

/** Which maps, and what of them; also the `attention` of `predict` and `rerank`. */
export interface MapFields {
  layers?: "all" | readonly number[];
  heads?: "all" | readonly number[];
  weights?: Weights;
  aggregate?: Aggregate;
  special_tokens?: "keep" | "drop";
  level?: "token" | "word";
  queries?: "all" | readonly number[];
  keys?: "all" | readonly number[];
  renormalize?: boolean;
  top_k?: number;
  thumbnail?: number;
  summary?: boolean;
  statistics?: readonly Statistic[];
  maps?: boolean;
}

/** Maps in JSON are rounded, to 6 decimals by default. */
export interface RoundedMapFields extends MapFields {
  decimals?: number;
}

/** The fields of `POST /attention` besides its inputs. */
export interface AttentionFields extends TaskFields, VectorFields, MapFields, ColumnFields, InterventionFields {
  outputs?: readonly ("sentence" | "tokens" | "query" | "key" | "output_norm")[];
  /** The weights of these alone: of a single input, or a list for each of several. */
  edges?: readonly Edge[] | readonly (readonly Edge[])[];
}

export interface EncodeOptions extends EncodeFields, CallOptions {
  /** The type of numbers on the way: arrays are float32 here all the same. */
  dtype?: "float32" | "float16";
}

export interface StreamEncodeOptions extends EncodeFields, CallOptions {}

export interface AttentionOptions extends AttentionFields, CallOptions {
  /** The type of maps on the way: arrays are float32 here all the same, off by at most `answer.maxError`. */
  dtype?: "float32" | "float16" | "uint8";
}

export interface StreamAttentionOptions extends AttentionFields, RoundedMapFields, CallOptions {}

export interface PredictOptions extends TextFields, InterventionFields, CallOptions {
  raw_scores?: boolean;
  top_k?: number;
  aggregation?: Aggregation;
  attention?: RoundedMapFields;
}

export interface RerankOptions extends PromptFields, InterventionFields, CallOptions {
  top_n?: number;
  return_texts?: boolean;
  raw_scores?: boolean;
  weights?: readonly [number, number, number];
  attention?: RoundedMapFields;
}

export interface SimilarityOptions extends TaskFields, InterventionFields, CallOptions {
  source?: string;
  function?: SimilarityFunction;
  /** The type of numbers on the way. */
  dtype?: "float32" | "float16";
}

export interface ExplainOptions extends TaskFields, InterventionFields, CallOptions {
  target?: "similarity" | "score" | "label" | { readonly label?: string; readonly token?: number };
  method?: Method;
  unit?: Unit;
  replacement?: Replacement;
  steps?: number;
  faithfulness?: boolean;
  function?: SimilarityFunction;
  pooling?: Pooling;
  dimensions?: number;
}

export interface TokenizeOptions extends PromptFields, CallOptions {
  special_tokens?: "keep" | "drop";
}

export interface DecodeOptions extends CallOptions {
  model?: string;
  skip_special_tokens?: boolean;
}
