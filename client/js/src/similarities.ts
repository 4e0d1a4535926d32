/** The similarities of texts: compared by the service, or here if they are too many for one request. */

import { Tensor, type Numbers } from "./arrays.js";
import { InputsError } from "./errors.js";
import type { SimilarityFunction } from "./fields.js";
import type { Info } from "./info.js";
import { pause } from "./sending.js";

/** Those of texts to a source, (texts,), or of all texts to each other, (texts, texts). */
export interface Similarities {
  model: string;
  function: string;
  similarities: Tensor;
  usage: { input_tokens: number };
  requestIds: string[];
}

type Measure = (vectors: Numbers, one: number, other: number, size: number) => number;

const TINY = 2 ** -126; // the smallest normal float32: the cosine of a zero vector is 0
const AT_ONCE = 2 ** 23; // products between two looks at other work: some ten milliseconds

const MEASURES: Record<SimilarityFunction, Measure> = {
  cosine: dot,
  dot,
  euclidean: (vectors, one, other, size) => {
    let sum = 0;
    for (let i = 0; i < size; i++) sum += ((vectors[one + i] as number) - (vectors[other + i] as number)) ** 2;
    return -Math.sqrt(sum);
  },
  manhattan: (vectors, one, other, size) => {
    let sum = 0;
    for (let i = 0; i < size; i++) sum += Math.abs((vectors[one + i] as number) - (vectors[other + i] as number));
    return -sum;
  },
};

function dot(vectors: Numbers, one: number, other: number, size: number): number {
  let sum = 0;
  for (let i = 0; i < size; i++) sum += (vectors[one + i] as number) * (vectors[other + i] as number);
  return sum;
}

/**
 * How to compare texts here: by the function that the call names, or else by the model's own in the document of `/info`.
 * Throws an InputsError for a function that this client does not have, and if neither names one.
 */
export function functionOf(named: string | undefined, info: Partial<Info>, model: string | undefined): SimilarityFunction {
  const known = Object.keys(MEASURES);
  const { models = [] } = info;
  const served = models.find(({ name }) => model === undefined || model === name);
  if (named === undefined && models.length > 0 && served === undefined) return "cosine"; // the service refuses the model
  const found = named ?? served?.similarity;
  if (found === undefined || found === null) {
    const detail =
      "texts are too many for one request, so they are compared here, and the service does not say in /info how: " +
      `pass the model's function, one of ${known.join(", ")}.`;
    throw new InputsError(detail, "function");
  }
  if (!known.includes(found)) throw new InputsError(`function is ${found}: use ${known.join(", ")}.`, "function");
  return found as SimilarityFunction;
}

/** Room for the similarities of `count` texts to each other. Throws an InputsError if there is none. */
export function square(count: number): Float32Array {
  try {
    return new Float32Array(count ** 2);
  } catch {
    const detail = `texts has ${count} items, whose ${count ** 2} similarities do not fit into memory`;
    throw new InputsError(`${detail}: compare fewer, or compare them with a source.`, "texts");
  }
}

/**
 * Compare all vectors (N, d) with each other, as `/similarity` does: fills `found` (N, N). Lets other work go on
 * meanwhile, and throws the reason of a signal that is aborted.
 */
export async function compare(
  name: SimilarityFunction,
  { data, shape }: Tensor<Numbers>,
  found: Float32Array,
  signal: AbortSignal | undefined,
): Promise<Tensor> {
  const [count = 0, size = 0] = shape;
  const vectors = name === "cosine" ? units(data, size) : data;
  const measure = MEASURES[name];
  let done = 0;
  for (let i = 0; i < count; i++) {
    for (let k = 0; k <= i; k++) {
      found[i * count + k] = found[k * count + i] = measure(vectors, i * size, k * size, size);
    }
    done += (i + 1) * size;
    if (done > AT_ONCE) {
      done = 0;
      await pause(0, signal);
    }
  }
  return new Tensor(found, [count, count]);
}

function units(data: Numbers, size: number): Float32Array {
  const scaled = Float32Array.from(data);
  for (let start = 0; start < scaled.length; start += size) {
    const vector = scaled.subarray(start, start + size);
    const length = Math.max(TINY, Math.sqrt(dot(vector, 0, 0, size)));
    vector.forEach((number, i) => (vector[i] = number / length));
  }
  return scaled;
}

/** Join the similarities of parts of the texts to the same source, in order. */
export function concatenated(parts: readonly Similarities[]): Similarities {
  const [first] = parts as [Similarities];
  const all = new Float32Array(parts.reduce((sum, { similarities }) => sum + similarities.data.length, 0));
  let start = 0;
  for (const { similarities } of parts) {
    all.set(similarities.data, start);
    start += similarities.data.length;
  }
  return {
    ...first,
    similarities: parts.length === 1 ? first.similarities : new Tensor(all, [all.length]),
    usage: { input_tokens: parts.reduce((sum, { usage }) => sum + usage.input_tokens, 0) },
    requestIds: parts.flatMap(({ requestIds }) => requestIds),
  };
}
