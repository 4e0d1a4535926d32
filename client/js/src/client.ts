/** `Headlight`: the routes of the service as methods. */

import { attentionMaps, encoded, tokens } from "./answers.js";
import type { Answer, AttentionMaps, Encoded, SomeColumns, Tokens } from "./answers.js";
import { floats } from "./arrays.js";
import { Call, checkCount, FILE, JSON_ONLY, joined, LINES, unpack } from "./calls.js";
import { failureOf, HeadlightConnectionError, HeadlightError, HeadlightTimeout } from "./errors.js";
import { explained, type Explained } from "./explanations.js";
import type * as fields from "./fields.js";
import type { Info } from "./info.js";
import { idRows, textRows } from "./inputs.js";
import { sendAll, type Send } from "./many.js";
import { best, decoded, predicted, ranked, type Predicted, type Ranked } from "./predictions.js";
import { RETRIED } from "./retry.js";
import { Exchange, fetchWhole, open, pause, type Connection } from "./sending.js";
import { compare, concatenated, functionOf, square, type Similarities } from "./similarities.js";
import { isTooMuch, limitsOf, MAX_IDS, MAX_INPUTS, Parts } from "./splitting.js";

/** Settings of a client. Times are in milliseconds. */
export interface HeadlightSettings {
  apiKey?: string;
  /** How long nothing may arrive; 60,000 by default, longer than the service's own timeout, whose error then arrives. */
  timeoutMs?: number;
  /**
   * How often a request is sent again after 429, 503 or a broken connection; 5 by default. If the service says when to
   * come back, that does not count; with 0 each request is sent once all the same.
   */
  retries?: number;
  /** How long after its start a request may be sent again; 60,000 by default. */
  retryForMs?: number;
  /** The requests of one call that are in flight at a time; 4 by default. */
  concurrency?: number;
  /** Sent with every request. */
  headers?: HeadersInit;
}

/** Options that name columns. */
type Some = Required<fields.ColumnFields>;

const TEMPORARY: readonly (number | null)[] = [408, 429, 500, 502, 503, 504]; // of a service or proxy that starts
const UNAUTHORIZED = 401;
const ATTEMPT_MS = 5000;
const READY_MS = { first: 100, longest: 2000 } as const; // between two looks at /readyz

/**
 * A client of one service.
 *
 * Inputs are a text, or any number of texts or pairs of texts. What exceeds the limits of one request is sent in
 * several, `concurrency` at a time; items are in the order of the inputs. The first request that fails cancels the
 * others, and `error.rows` has its inputs. All methods throw a HeadlightError, or the reason of a `signal` that is
 * aborted.
 */
export class Headlight {
  readonly #connection: Connection;
  #known: Partial<Info> | null = null;

  /** Throws a TypeError or a RangeError for a setting that is not valid. */
  constructor(url = "http://127.0.0.1:8000", settings: HeadlightSettings = {}) {
    const { apiKey, timeoutMs = 60_000, retries = 5, retryForMs = 60_000, concurrency = 4 } = settings;
    if (!/^https?:\/\//.test(url)) {
      throw new TypeError(`url is ${url}: include the scheme, such as http://127.0.0.1:8000.`);
    }
    for (const [name, value, least] of [
      ["timeoutMs", timeoutMs, 1],
      ["retries", retries, 0],
      ["retryForMs", retryForMs, 0],
      ["concurrency", concurrency, 1],
    ] as const) {
      if (!(value >= least)) throw new RangeError(`${name} is ${value}: it must be at least ${least}.`);
    }
    const headers = new Headers(settings.headers);
    if (apiKey !== undefined) headers.set("Authorization", `Bearer ${apiKey}`);
    const policy = { count: retries, ms: retryForMs };
    const reached = { url: url.replace(/\/+$/, ""), headers, timeoutMs, retries: policy };
    this.#connection = { ...reached, concurrency, failed: failureOf };
  }

  /** `POST /encode`: sentence vectors, or with `outputs` vectors of tokens, sparse ones, or words of layers. */
  encode(inputs: fields.Inputs, options: fields.EncodeOptions & Some): Promise<Answer<SomeColumns<Encoded>>>;
  encode(inputs: fields.Inputs, options?: fields.EncodeOptions): Promise<Answer<Encoded>>;
  encode(inputs: fields.Inputs, options: fields.EncodeOptions = {}): Promise<Answer<Encoded>> {
    return this.#fetch(() => texts("/encode", FILE, inputs, options, encoded));
  }

  /** `POST /attention`: maps, (layer, head, query, key) by default. */
  attention(
    inputs: fields.Inputs,
    options: fields.AttentionOptions & Some,
  ): Promise<Answer<SomeColumns<AttentionMaps>>>;
  attention(inputs: fields.Inputs, options?: fields.AttentionOptions): Promise<Answer<AttentionMaps>>;
  attention(inputs: fields.Inputs, options: fields.AttentionOptions = {}): Promise<Answer<AttentionMaps>> {
    return this.#fetch(() => texts("/attention", FILE, inputs, options, attentionMaps));
  }

  /** Like `encode`, but yields each item as soon as it is ready, in any order: see `item.index`. */
  streamEncode(
    inputs: fields.Inputs,
    options: fields.StreamEncodeOptions & Some,
  ): AsyncGenerator<SomeColumns<Encoded>, void, void>;
  streamEncode(inputs: fields.Inputs, options?: fields.StreamEncodeOptions): AsyncGenerator<Encoded, void, void>;
  streamEncode(inputs: fields.Inputs, options: fields.StreamEncodeOptions = {}): AsyncGenerator<Encoded, void, void> {
    return this.#stream(() => texts("/encode", LINES, inputs, options, encoded));
  }

  /** Like `attention`, but yields each item as soon as it is ready, rounded to `decimals`, in any order. */
  streamAttention(
    inputs: fields.Inputs,
    options: fields.StreamAttentionOptions & Some,
  ): AsyncGenerator<SomeColumns<AttentionMaps>, void, void>;
  streamAttention(
    inputs: fields.Inputs,
    options?: fields.StreamAttentionOptions,
  ): AsyncGenerator<AttentionMaps, void, void>;
  streamAttention(
    inputs: fields.Inputs,
    options: fields.StreamAttentionOptions = {},
  ): AsyncGenerator<AttentionMaps, void, void> {
    return this.#stream(() => texts("/attention", LINES, inputs, options, attentionMaps));
  }

  /** `POST /predict`: classes of texts, or of their tokens, with scores. */
  predict(inputs: fields.Inputs, options: fields.PredictOptions = {}): Promise<Answer<Predicted>> {
    return this.#fetch(() => texts("/predict", JSON_ONLY, inputs, options, predicted));
  }

  /** `POST /rerank`: any number of texts, the best match of a query first. */
  async rerank(query: string, texts: Iterable<string>, options: fields.RerankOptions = {}): Promise<Answer<Ranked>> {
    const rows = textRows(texts, "texts", false);
    const call = new Call("/rerank", JSON_ONLY, "texts", rows, false, { query, ...options }, ranked, false);
    return best(await this.#fetch(() => call), options.top_n);
  }

  /**
   * `POST /similarity`: of any number of texts to a `source`, or without one of all texts to each other. Those without a
   * source that are too many for one request are encoded in several, and compared here: by `function`, or else by the
   * model's own, which `/info` names.
   */
  async similarity(texts: Iterable<string>, options: fields.SimilarityOptions = {}): Promise<Similarities> {
    const rows = textRows(texts, "texts", false);
    const call = new Call("/similarity", FILE, "texts", rows, false, options, decoded);
    const send: Send<Similarities> = (part, signal, progress) => {
      const read = (headers: Headers, content: Uint8Array) => {
        const [meta] = unpack(headers, content);
        const similarities = floats(meta.similarities, 1);
        checkCount(similarities?.shape[0], part);
        const requestIds = [headers.get("x-request-id")].filter((id) => id !== null);
        const { model, usage } = meta;
        return { model, function: meta.function, similarities, usage, requestIds } as Similarities;
      };
      return fetchWhole(this.#connection, call.request(part), signal, read, progress);
    };
    if (options.source !== undefined) return concatenated(await this.#split(call, send));
    const [whole] = await this.#split(call, send, async (refused) => [await this.#compared(call, options, refused)]);
    return whole as Similarities;
  }

  /** Encode the texts of a call of `/similarity`, which were `refused` as too many if they were sent, and compare them. */
  async #compared(
    { rows, model, signal }: Call<string>,
    { function: named, dtype: _, source: __, ...options }: fields.SimilarityOptions,
    refused: unknown,
  ): Promise<Similarities> {
    const call = new Call("/encode", FILE, "inputs", rows, false, options, encoded);
    const name = functionOf(named, await this.#info(call), model);
    const room = square(rows.length);
    const answer = joined(await this.#inParts(call, this.#sender(call), refused, "texts"));
    const similarities = await compare(name, answer.embeddings, room, signal);
    const { usage, requestIds } = answer;
    return { model: answer.model, function: name, similarities, usage, requestIds: [...requestIds] };
  }

  /** `POST /explain`: what makes a similarity, a score or a label, by words, sentences, tokens or heads. */
  explain(inputs: fields.Inputs, options: fields.ExplainOptions = {}): Promise<Answer<Explained>> {
    return this.#fetch(() => texts("/explain", FILE, inputs, options, explained));
  }

  /** `POST /tokenize`: the tokens that the model would run. */
  tokenize(inputs: fields.Inputs, options: fields.TokenizeOptions = {}): Promise<Answer<Tokens>> {
    return this.#fetch(() => texts("/tokenize", JSON_ONLY, inputs, options, tokens));
  }

  /** `POST /decode`: the text of each list of token ids. */
  decode(tokenIds: fields.TokenIds, options: fields.DecodeOptions = {}): Promise<Answer<string>> {
    const rows = () => idRows(tokenIds, "token_ids");
    return this.#fetch(() => new Call("/decode", JSON_ONLY, "token_ids", rows(), false, options, decoded));
  }

  /** `GET /info`: the version, the served models and the limits. */
  info({ signal }: fields.CallOptions = {}): Promise<Info> {
    return fetchWhole(this.#connection, { path: "/info" }, signal, (_, content) => {
      const info = JSON.parse(new TextDecoder().decode(content)) as Info;
      if (!Array.isArray(info.models)) throw new Error("models is missing");
      return info;
    });
  }

  /** Whether `GET /readyz` returns 200 now. Throws only if the service cannot be asked. */
  async isReady({ signal }: fields.CallOptions = {}): Promise<boolean> {
    try {
      (await Exchange.begin(this.#connection, { path: "/readyz" }, signal)).close();
      return true;
    } catch (error) {
      if (error instanceof HeadlightError && TEMPORARY.includes(error.status)) return false;
      throw error;
    }
  }

  /** Wait until `GET /readyz` returns 200. Throws a HeadlightTimeout, with the last error as its `cause`. */
  async waitUntilReady(options: { timeoutMs?: number } & fields.CallOptions = {}): Promise<void> {
    const { timeoutMs = 60_000, signal } = options;
    const until = performance.now() + timeoutMs;
    for (let wait: number = READY_MS.first; ; wait = Math.min(2 * wait, READY_MS.longest)) {
      const left = Math.max(READY_MS.first, until - performance.now());
      const connection = { ...this.#connection, timeoutMs: Math.min(ATTEMPT_MS, left) };
      try {
        return (await Exchange.begin(connection, { path: "/readyz" }, signal)).close();
      } catch (error) {
        const passes = error instanceof HeadlightConnectionError;
        if (!passes && !(error instanceof HeadlightError && TEMPORARY.includes(error.status))) throw error;
        if (performance.now() + wait > until) {
          const url = `${connection.url}/readyz`;
          const detail = `${url} was not ready within ${timeoutMs / 1000} s. Last error: ${error.message}`;
          throw new HeadlightTimeout(url, detail, error);
        }
      }
      await pause(wait, signal);
    }
  }

  async #fetch<T>(make: () => Call<T>): Promise<Answer<T>> {
    const call = make();
    return joined(await this.#split(call, this.#sender(call)));
  }

  /** What sends a part of a call, and reads its items. */
  #sender<T>(call: Call<T>): Send<Answer<T>> {
    return (part, signal, progress) => {
      const read = (headers: Headers, content: Uint8Array) => call.answer(part, headers, content);
      return fetchWhole(this.#connection, call.request(part), signal, read, progress);
    };
  }

  /** Send a call in one request, or if it is too large or was `refused` as such, in another way; the answers in order. */
  async #split<R>(
    call: Call<unknown>,
    send: Send<R>,
    otherwise: (refused: unknown) => Promise<R[]> = (refused) => this.#inParts(call, send, refused),
  ): Promise<R[]> {
    if (!this.#isSmall(call)) return otherwise(null);
    try {
      return [await send(call.whole, call.signal)];
    } catch (error) {
      if (!isTooMuch(error) || call.rows.length === 1) throw error;
      return otherwise(error);
    }
  }

  /** Send a call in several requests, after one with all inputs if it was `refused`; `called` is as in `Parts`. */
  async #inParts<R>(call: Call<unknown>, send: Send<R>, refused: unknown, called?: string): Promise<R[]> {
    const { concurrency } = this.#connection;
    const parts = await this.#parts(call, concurrency, called);
    if (refused !== null) parts.learn(refused, call.rows.length);
    return sendAll(parts, send, concurrency, call.signal);
  }

  async *#stream<T>(make: () => Call<T>): AsyncGenerator<T, void, void> {
    const call = make();
    const parts = this.#isSmall(call) ? this.#one(call) : await this.#parts(call, 1);
    for (let part = parts.next(); part !== null; part = parts.next()) {
      let exchange: Exchange;
      try {
        exchange = await open(this.#connection, call.request(part), call.signal);
      } catch (error) {
        parts.refused(error, part);
        continue;
      }
      try {
        yield* call.lines(part, exchange.headers, exchange.pieces());
      } catch (error) {
        call.signal?.throwIfAborted();
        throw parts.placed(error, part);
      } finally {
        exchange.close();
      }
    }
  }

  /** Whether to send a call in one request, and split it only if the service refuses that. */
  #isSmall(call: Call<unknown>): boolean {
    const limits = limitsOf(this.#known, call.model);
    const bytes = call.rows.reduce((sum, row) => sum + row.bytes + 1, call.frameBytes);
    const ids = call.rows.reduce((sum, row) => sum + (row.ids ?? 0), 0);
    const most = Math.min(limits.inputs, MAX_INPUTS);
    return call.rows.length === 1 || (call.rows.length <= most && bytes <= limits.bodyBytes && ids <= MAX_IDS);
  }

  #one(call: Call<unknown>): Parts {
    const limits = { inputs: Infinity, bodyBytes: Infinity, queueTokens: Infinity, maxLength: Infinity };
    return new Parts(call.rows, limits, call.frameBytes, 1);
  }

  async #parts(call: Call<unknown>, concurrency: number, called?: string): Promise<Parts> {
    const limits = limitsOf(await this.#info(call), call.model);
    return new Parts(call.rows, limits, call.frameBytes, concurrency, called);
  }

  /** The document of `/info`, which is fetched once; of a service without one it is empty. */
  async #info(options: fields.CallOptions): Promise<Partial<Info>> {
    return (this.#known ??= await this.info(options).catch(withoutInfo));
  }
}

/** Go on with our own limits if `/info` failed; throws an error that the call would meet too. */
function withoutInfo(error: unknown): Partial<Info> {
  const { status } = error instanceof HeadlightError ? error : { status: null };
  if (status === null || status === UNAUTHORIZED || RETRIED.includes(status)) throw error;
  return {};
}

function texts<T>(
  path: string,
  accept: string,
  inputs: unknown,
  options: object,
  read: ConstructorParameters<typeof Call<T>>[6],
): Call<T> {
  return new Call(path, accept, "inputs", textRows(inputs, "inputs", true), typeof inputs === "string", options, read);
}
