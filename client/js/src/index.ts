/** The JavaScript client of headlight: typed arrays, typed errors, retries, calls of any size. */

export { Answer } from "./answers.js";
export type {
  AttentionMaps,
  Axis,
  Chunks,
  Encoded,
  LogitLens,
  SomeColumns,
  Span,
  SparseVector,
  Tokens,
  Vector,
} from "./answers.js";
export { Tensor, type Numbers } from "./arrays.js";
export { Headlight, type HeadlightSettings } from "./client.js";
export {
  HeadlightConnectionError,
  HeadlightError,
  HeadlightTimeout,
  InputsError,
  type Problem,
  type Rows,
} from "./errors.js";
export type * from "./fields.js";
export type { Explained, Units } from "./explanations.js";
export type { Info, ServedModel, ServiceLimits } from "./info.js";
export type { Entity, Label, Predicted, Ranked } from "./predictions.js";
export type { Similarities } from "./similarities.js";
