/** Where maps come from: a service over HTTP, the kernel of a notebook, or the file that the page is. */

import type {
  AttentionMaps,
  AttentionOptions,
  Answer as ClientAnswer,
  Info,
  Inputs,
  Tokens,
} from "../../../client/js/src/index.js";
import type { LayerMaps } from "./maps.js";
import type { Json, Question } from "./why.js";

/** What the page reads of an answer. */
export type Answer<T> = Pick<ClientAnswer<T>, "items" | "usage">;

export interface Source {
  /** Whether there is nothing but what it holds: a file, or what a notebook was saved with. */
  readonly held?: boolean;
  /** The served models. */
  info(): Promise<Info>;
  /** `POST /attention` of one text or one pair. */
  attention(inputs: Inputs, options: AttentionOptions): Promise<Answer<AttentionMaps>>;
  /** The same for all maps of one layer, in half precision. */
  layer(inputs: Inputs, options: AttentionOptions): Promise<Answer<LayerMaps>>;
  /** `POST /tokenize` of one text or one pair. */
  tokenize(inputs: Inputs, options: TextFields): Promise<Answer<Tokens>>;
  /** What another route answers in JSON; a file has the answers that were there when it was saved. */
  ask(question: Question, signal: AbortSignal): Promise<Json>;
  /** Go on with an API key, where there are keys. */
  useKey?(key: string): void;
  /** The same answer as a file of numpy; a file that holds maps cannot ask for one. */
  npz?(inputs: Inputs, options: AttentionOptions): Promise<Blob>;
  /** What this page is made of, for a file that holds it. */
  assets(): Promise<Assets>;
  /** Where programs find the service, where there is one. */
  readonly url?: string;
  /** Whether requests have a key. */
  readonly keyed?: boolean;
}

const UNAUTHORIZED = 401;

/** Whether a service wants another key. */
export function isRefused(error: Error): boolean {
  return (error as { status?: unknown }).status === UNAUTHORIZED;
}

/** Whether a service gave no answer at all. */
export function isLost(error: Error): boolean {
  return (error as { status?: unknown }).status === null && "url" in error;
}

/** The built explorer. */
export interface Assets {
  readonly script: string;
  readonly style: string;
}

/** Which tokens run. */
export interface TextFields {
  model?: string;
  prompt?: string;
  prompt_name?: string;
  signal?: AbortSignal;
}
