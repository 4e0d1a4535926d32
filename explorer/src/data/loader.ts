/** Loads what views ask for, once: each call returns a signal that is first loading, then ready or failed. */

import { type ReadonlySignal, type Signal, signal } from "@preact/signals-core";
import type { AttentionMaps, AttentionOptions } from "../../../client/js/src/index.js";
import { Cache } from "./cache.js";
import { type LayerMaps, type Rows, readRows } from "./maps.js";
import { type Overview, readOverview } from "./overview.js";
import type { Direction, Subject } from "./requests.js";
import * as requests from "./requests.js";
import type { Answer, Source } from "./source.js";
import { type Json, type Question, questionKey } from "./why.js";

export type Loaded<T> =
  | { readonly state: "loading" }
  | { readonly state: "ready"; readonly value: T }
  | { readonly state: "failed"; readonly error: Error };

/** What the last answer took. */
export interface Timing {
  readonly ms: number;
  readonly tokens: number;
}

interface Entry {
  readonly loaded: Signal<Loaded<unknown>>;
  readonly controller: AbortController;
}

/** Twelve layers of 512 tokens have 76 MB. */
const CACHE_BYTES = 128 << 20;
/** Of thumbnails and statistics besides: rows and strings of the tokens. */
const ENTRY_BYTES = 4096;
const LOADING: Loaded<never> = { state: "loading" };

export class Loader {
  readonly last = signal<Timing | null>(null);
  /** Requests in flight. */
  readonly waiting = signal(0);
  /** Counts how often something was forgotten: all that load read it, so that they ask again. */
  readonly #generation = signal(0);
  readonly #cache = new Cache<Entry>(CACHE_BYTES, ({ controller }) => controller.abort());

  constructor(
    readonly source: Source,
    /** Told of each request that failed. */
    readonly failed: (error: Error) => void = () => undefined,
  ) {}

  /** Tokens, statistics and thumbnails. */
  overview(subject: Subject): ReadonlySignal<Loaded<Overview>> {
    return this.#load(subject, "overview", async (signal) => {
      const began = performance.now();
      const short = requests.isSurelyShort(subject) || (await this.#isShort(subject, signal));
      const item = await this.#ask(subject, requests.overviewFields(subject, short), signal);
      const overview = readOverview(subject, item, performance.now() - began);
      return [overview, overview.thumbnails?.data.byteLength ?? 0];
    });
  }

  /** All maps of a layer; for inputs of at most LARGEST_WHOLE tokens. */
  layer(subject: Subject, layer: number): ReadonlySignal<Loaded<LayerMaps>> {
    return this.#load(subject, `layer ${layer}`, async (signal) => {
      const fields = { ...requests.layerFields(subject, layer), signal };
      const maps = await this.#timed(this.source.layer(requests.inputsOf(subject), fields));
      return [maps, maps.halves.byteLength];
    });
  }

  /** One row of each head of a layer, or one column. */
  row(subject: Subject, layer: number, position: number, direction: Direction): ReadonlySignal<Loaded<Rows>> {
    return this.#load(subject, `${direction} ${position} of ${layer}`, async (signal) => {
      const fields = requests.rowFields(subject, layer, position, direction);
      const rows = readRows(await this.#ask(subject, fields, signal));
      return [rows, rows.weights.byteLength];
    });
  }

  /** Any other part of the maps of some layers, by the fields that ask for it, as the client reads it. */
  part(subject: Subject, fields: AttentionOptions): ReadonlySignal<Loaded<AttentionMaps>> {
    return this.#load(subject, `part ${JSON.stringify(fields)}`, async (signal) => {
      const all = { ...requests.layersFields(subject, fields.layers as number[]), ...fields };
      const item = await this.#ask(subject, all, signal);
      return [item, item.attention?.data.byteLength ?? 0];
    });
  }

  /** What another route answers in JSON, of no subject: it is kept whatever else is chosen. */
  answer<T>(question: Question): ReadonlySignal<Loaded<T>> {
    return this.#entry(questionKey(question), async (signal) => {
      const began = performance.now();
      const answer = await this.source.ask(question, signal);
      this.last.value = { ms: performance.now() - began, tokens: answer["usage"].input_tokens };
      return [answer as T, 0];
    });
  }

  /** The answers of other routes about a text, for a file that holds them. */
  answersOf({ text }: Pick<Subject, "text">): Record<string, Json> {
    const ready = this.#cache.entries().flatMap(([key, { loaded }]) => {
      const one = loaded.peek();
      return key[0] === "/" && key.includes(JSON.stringify(text)) && one.state === "ready" ? [[key, one.value]] : [];
    });
    return Object.fromEntries(ready);
  }

  /** Cancel what is in flight, or of it one answer by its key; a view that still wants it asks again. */
  cancel(key?: string): void {
    this.#forget("loading", key);
  }

  /** Ask again for what failed, once a view wants it. */
  forgetFailures(): void {
    this.#forget("failed");
  }

  #forget(state: "loading" | "failed", only?: string): void {
    const entries = this.#cache
      .entries()
      .filter(([key, { loaded }]) => key === (only ?? key) && loaded.peek().state === state);
    for (const [key, { controller }] of entries) {
      controller.abort();
      this.#cache.delete(key);
    }
    if (entries.length > 0) this.#generation.value += 1;
  }

  #load<T>(subject: Subject, what: string, fetch: (signal: AbortSignal) => Promise<[T, number]>): Signal<Loaded<T>> {
    return this.#entry(`${requests.keyOf(subject)} ${what}`, fetch);
  }

  #entry<T>(key: string, fetch: (signal: AbortSignal) => Promise<[T, number]>): Signal<Loaded<T>> {
    this.#generation.value;
    const known = this.#cache.get(key);
    if (known !== undefined) return known.loaded as Signal<Loaded<T>>;
    const entry = { loaded: signal<Loaded<T>>(LOADING), controller: new AbortController() };
    this.#cache.set(key, entry as Entry, ENTRY_BYTES);
    void this.#run(key, entry, fetch);
    return entry.loaded;
  }

  async #run<T>(
    key: string,
    { loaded, controller: { signal } }: { loaded: Signal<Loaded<T>>; controller: AbortController },
    fetch: (signal: AbortSignal) => Promise<[T, number]>,
  ): Promise<void> {
    // Views ask while they are computed, which must not change a signal.
    await Promise.resolve();
    this.waiting.value += 1;
    try {
      const [value, bytes] = await fetch(signal);
      this.#cache.resize(key, ENTRY_BYTES + bytes);
      loaded.value = { state: "ready", value };
    } catch (error) {
      if (signal.aborted) return;
      this.failed(error as Error);
      loaded.value = { state: "failed", error: error as Error };
    } finally {
      this.waiting.value -= 1;
    }
  }

  #ask(subject: Subject, fields: AttentionOptions, signal: AbortSignal): Promise<AttentionMaps> {
    return this.#timed(this.source.attention(requests.inputsOf(subject), { ...fields, signal }));
  }

  /** The one item of an answer. */
  async #timed<T>(answer: Promise<Answer<T>>): Promise<T> {
    const began = performance.now();
    const { items, usage } = await answer;
    this.last.value = { ms: performance.now() - began, tokens: usage.input_tokens };
    return items[0]!;
  }

  async #isShort(subject: Subject, signal: AbortSignal): Promise<boolean> {
    const answer = await this.source.tokenize(requests.inputsOf(subject), {
      ...requests.textFields(subject),
      signal,
    });
    return answer.items[0]!.tokens.length <= requests.LARGEST_WHOLE;
  }
}
