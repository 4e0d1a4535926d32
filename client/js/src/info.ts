/** The document of `/info`. A later version of the service may report more. */

/** One served model. Lengths are in tokens. */
export interface ServedModel {
  name: string;
  family: string;
  layers: number;
  heads: number;
  /** The layers whose attention it returns, from 0; earlier services do not report it. */
  attention_layers?: number[];
  hidden_size: number;
  max_length: number;
  pooling: string[];
  normalize: boolean;
  /** Components of a sentence vector. */
  sentence_size: number;
  similarity: string;
  prompts: Record<string, string>;
  default_prompt_name: string | null;
  /** The tasks that it has adapters for. */
  tasks: string[];
  default_task: string | null;
  backend: string;
  provider: string | null;
  device: string;
  /** The precision it computes in. */
  dtype: string;
  kernels: string | null;
  /** Whether it returns attention maps. */
  attention: boolean;
  /** Whether it returns vectors of tokens; earlier services do not report it. */
  token_embeddings?: boolean;
  /** What it predicts, besides embeddings. */
  prediction: { kind: string; [member: string]: unknown } | null;
  max_batch_tokens: number;
  max_queue_tokens: number;
  /** The time within which it answers a request; earlier services do not report it. */
  request_timeout_s?: number;
  /** The time that a text of `max_length` tokens takes on an idle service; earlier services do not report it. */
  longest_text_s?: number;
}

/** The limits of one request: calls are split to stay within them. */
export interface ServiceLimits {
  max_inputs: number;
  max_body_bytes: number;
  max_response_bytes: number;
  request_timeout_s: number;
}

/** The running service: the first model is the default. */
export interface Info {
  version: string;
  models: ServedModel[];
  limits: ServiceLimits;
}
