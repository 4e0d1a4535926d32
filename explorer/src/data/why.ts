/** What is asked to say why a score is what it is, and how the answers are read. Nothing here sends anything. */

import type { ServedModel } from "../../../client/js/src/index.js";
import type { HeadId, State } from "../state/fields.js";
import { ablation, inputsOf, type Subject, textFields } from "./requests.js";

/** A request in JSON. */
export interface Question {
  readonly path: string;
  readonly body: object;
}

/** Two questions with the same key have the same answer. */
export function questionKey({ path, body }: Question): string {
  return `${path} ${JSON.stringify(body)}`;
}

/** A document in JSON. */
// biome-ignore lint/suspicious/noExplicitAny: what an answer has is read where it is shown.
export type Json = Record<string, any>;

/** What a model says of an input. */
export type Task = "similarity" | "score" | "label" | "token";

export function taskOf({ prediction }: Pick<ServedModel, "prediction">): Task {
  if (prediction?.kind === "token_classification") return "token";
  if (prediction?.kind !== "classification") return "similarity";
  return (prediction["labels"] as string[]).length === 1 ? "score" : "label";
}

/** Why there is nothing to explain, in a sentence; null if there is. */
export function nothingToExplain({ model, pair }: Pick<Subject, "model" | "pair">): string | null {
  const task = taskOf(model);
  return pair !== null || task === "label" || task === "token"
    ? null
    : `Add a second text: what is explained is the ${task} of two texts.`;
}

/** Asks for what the model says of an input, in a run without some heads; `raw` is for the logit of a score. */
export function runQuestion(subject: Subject, ablated: readonly HeadId[], raw = false): Question {
  const { text, pair } = subject;
  const model = subject.model.name;
  const task = taskOf(subject.model);
  const without = ablation({ ablated });
  if (task === "label" || task === "token") {
    return { path: "/predict", body: { inputs: inputsOf(subject), model, ...without } };
  }
  if (task === "score" || isLate(subject)) {
    const fields = raw ? { raw_scores: true } : {};
    return { path: "/rerank", body: { query: text, texts: [pair], model, ...fields, ...without } };
  }
  return { path: "/similarity", body: { source: text, texts: [pair], ...textFields(subject), ...without } };
}

/**
 * Asks which units make the score, or with `heads` which heads. Units are those of the run without the ablated
 * heads, but for gradients, which go through the whole model; each head is taken out of the whole model, too.
 */
export function explainQuestion(
  subject: Subject,
  { method, unit, label, labelled }: Pick<State, "method" | "unit" | "label" | "labelled">,
  heads = false,
): Question {
  const task = taskOf(subject.model);
  const named = label === null ? {} : { label };
  const target = task === "token" ? { token: labelled, ...named } : named;
  const body = {
    inputs: inputsOf(subject),
    // Prompts are those of sentence vectors.
    ...(task === "similarity" && !isLate(subject) ? textFields(subject) : { model: subject.model.name }),
    ...((task === "label" || task === "token") && Object.keys(target).length > 0 ? { target } : {}),
    ...(heads ? { method: "heads" } : { ...(method === "auto" ? {} : { method }), unit }),
    ...(heads || method === "gradient" ? {} : ablation(subject)),
  };
  return { path: "/explain", body };
}

/** An explanation of one input. */
export interface Explanation {
  readonly method: string;
  readonly score: number;
  readonly label?: string;
  readonly replacement?: string;
  readonly baseline_scores?: readonly number[];
  readonly units: {
    readonly text: readonly string[];
    readonly offsets: readonly (readonly [number, number])[];
    readonly segment: readonly number[];
  };
  /** (units of the first text, units of the second) */
  readonly parts?: readonly (readonly number[])[];
  /** (units,) */
  readonly attributions?: readonly number[];
}

/** What the page says of a run: scores by their names, in the order of the first run. */
export function scoresOf(task: Task, answer: Json, labelled: number): [name: string, score: number][] {
  if (task === "similarity" && answer["similarities"]) return [[answer["function"], answer["similarities"][0]]];
  const [item] = answer["data"];
  if (task === "label") return item.labels.map(({ label, score }: Json) => [label, score]);
  if (task === "token") return [[item.token_labels[labelled], item.token_scores[labelled]]];
  return [[task === "score" ? "score" : "MaxSim", item.score]];
}

/** The first token with a label that is not "O", else the first that is not special. */
export function labelledToken({ data: [item] }: Json): number {
  const plain = (i: number) => !item.special[i];
  const found = item.token_labels.findIndex((label: string, i: number) => plain(i) && label !== "O");
  return found >= 0 ? found : Math.max(0, item.special.indexOf(false));
}

/** What each unit adds: with parts, its row or column, or of it only what it adds with one unit of the other text. */
export function effectsOf({ parts, attributions }: Explanation, row: number | null, column: number | null): number[] {
  if (parts === undefined) return [...attributions!];
  const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);
  const across = parts[0]?.map((_, j) => (row === null ? sum(parts.map((some) => some[j]!)) : parts[row]![j]!)) ?? [];
  return [...parts.map((some) => (column === null ? sum(some) : some[column]!)), ...across];
}

function isLate({ model }: Subject): boolean {
  return model.prediction?.kind === "late_interaction";
}
