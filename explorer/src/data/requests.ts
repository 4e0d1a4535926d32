/** What the explorer asks of `POST /attention`. Nothing here sends anything. */

import type { AttentionOptions, Inputs, Intervention, ServedModel } from "../../../client/js/src/index.js";
import type { State } from "../state/fields.js";

/** One input to one model, and how its weights are taken. */
export interface Subject
  extends Pick<State, "text" | "pair" | "prompt" | "weights" | "level" | "special" | "ablated"> {
  readonly model: ServedModel;
}

/** The direction of a row: where a token looks, or what looks at it. */
export type Direction = State["direction"];

/** Of the largest inputs whose maps are loaded whole; longer ones are read by rows and windows. */
export const LARGEST_WHOLE = 1024;
/** Rows and columns of a thumbnail. */
export const THUMBNAIL = 64;

const keys = new WeakMap<Subject, string>();

/** Two subjects with the same key have the same maps. Pointing at a token asks for it once for each chosen head. */
export function keyOf(subject: Subject): string {
  let key = keys.get(subject);
  if (key === undefined) {
    const { model, text, pair, prompt, weights, level, special, ablated } = subject;
    key = JSON.stringify([model.name, text, pair, prompt, weights, level, special, ablated]);
    keys.set(subject, key);
  }
  return key;
}

export function inputsOf({ text, pair }: Pick<Subject, "text" | "pair">): Inputs {
  return pair === null ? text : [[text, pair] as const];
}

/** The fields that say which tokens run. */
export function textFields({ model, prompt }: Pick<Subject, "model" | "prompt">): AttentionOptions {
  const named = prompt === null ? {} : prompt === "" ? { prompt: "" } : { prompt_name: prompt };
  return { model: model.name, ...named };
}

/** The fields that say what weights are. */
export function weightFields({ weights, level, special }: Subject): AttentionOptions {
  return {
    ...(weights === "rollout" ? { aggregate: "rollout" as const } : weights === "probability" ? {} : { weights }),
    ...(level === "word" ? { level } : {}),
    ...(special === "keep" ? {} : { special_tokens: "drop" as const }),
    ...(isRenormalized({ weights, special }) ? { renormalize: true } : {}),
  };
}

/** The field that ablates heads: of what a layer shows only earlier ones count, and others are refused. */
export function ablation(
  { ablated }: Pick<Subject, "ablated">,
  before = Number.POSITIVE_INFINITY,
): { interventions?: Intervention[] } {
  const layers = [...new Set(ablated.map(([layer]) => layer))].filter((layer) => layer < before);
  const interventions = layers.map((layer) => ({
    kind: "heads" as const,
    layer,
    heads: ablated.filter(([other]) => other === layer).map(([, head]) => head),
  }));
  return layers.length > 0 ? { interventions } : {};
}

/** Scores cannot be renormalised: their sum may be 0. */
export function isRenormalized({ weights, special }: Pick<Subject, "weights" | "special">): boolean {
  return special === "renormalize" && weights !== "score";
}

/** Statistics of every head, and thumbnails unless the input is long. */
export function overviewFields(subject: Subject, thumbnails: boolean): AttentionOptions {
  // Rollout is one map: the grid beside it shows the probabilities that it is made of.
  const weights = subject.weights === "rollout" ? "probability" : subject.weights;
  const common = {
    ...textFields(subject),
    ...weightFields({ ...subject, weights }),
    ...ablation(subject, subject.model.layers - 1),
    summary: true,
  };
  // Steps of 1/255 would level the weights of a head that looks at hundreds of tokens.
  if (thumbnails) return { ...common, thumbnail: THUMBNAIL, dtype: "float16" };
  const { weights: _, ...statistics } = common;
  return { ...statistics, maps: false };
}

/** All maps of a layer. */
export function layerFields(subject: Subject, layer: number): AttentionOptions {
  return layersFields(subject, [layer]);
}

/** All maps of some layers. */
export function layersFields(subject: Subject, layers: number[]): AttentionOptions {
  const fields = { ...textFields(subject), ...weightFields(subject), ...ablation(subject, Math.max(...layers)) };
  return { ...fields, layers, dtype: "float16" };
}

/** One row of each head of a layer, or one column. */
export function rowFields(subject: Subject, layer: number, position: number, direction: Direction): AttentionOptions {
  const chosen = direction === "from" ? { queries: [position] } : { keys: [position] };
  return { ...layerFields(subject, layer), ...chosen };
}

/** Whether all maps of a layer fit into an answer and into memory. */
export function fitsWhole(tokens: number, heads: number, maxResponseBytes: number): boolean {
  return tokens <= LARGEST_WHOLE && 2 * heads * tokens ** 2 < 0.9 * maxResponseBytes;
}

/** Whether an input surely has at most as many tokens as are loaded whole, without asking how many it has. */
export function isSurelyShort({ model, text, pair }: Subject): boolean {
  if (model.max_length <= LARGEST_WHOLE) return true;
  const special = 8;
  return new TextEncoder().encode(text + (pair ?? "")).length + special <= LARGEST_WHOLE;
}
