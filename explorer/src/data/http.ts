/**
 * A service over HTTP, through the parts of the client that send one request and read its response: those that split
 * calls would be a twelfth of the page.
 */

import { Answer, AXES, attentionMaps, type Json, type Reading, tokens } from "../../../client/js/src/answers.js";
import { FILE, JSON_ONLY, unpack } from "../../../client/js/src/calls.js";
import type { AttentionOptions, Info, Inputs } from "../../../client/js/src/index.js";
import { type Connection, fetchWhole } from "../../../client/js/src/sending.js";
import type { Assets, Source, TokenizeFields } from "./source.js";

const KEY = "headlight-key";
/** A busy service is asked again for this long; then the page says so. */
const RETRIES = { count: 5, ms: 10_000 };
const TIMEOUT_MS = 60_000;

/** The service at a URL. The key is kept in the tab's own storage, never in the URL. */
export class HttpSource implements Source {
  readonly kind = "http";
  #key = stored();

  constructor(readonly url: string) {}

  useKey(key: string): void {
    try {
      sessionStorage.setItem(KEY, key);
    } catch {
      // Storage is turned off: the key is kept until the page is left.
    }
    this.#key = key;
  }

  info() {
    return fetchWhole(this.#connection, { path: "/info" }, undefined, (_, content) => {
      const info = JSON.parse(new TextDecoder().decode(content)) as Info;
      if (!Array.isArray(info.models)) throw new Error("models is missing");
      return info;
    });
  }

  attention(inputs: Inputs, { dtype, ...options }: AttentionOptions) {
    return this.#send(
      `/attention${dtype === undefined ? "" : `?dtype=${dtype}`}`,
      FILE,
      inputs,
      options,
      attentionMaps,
    );
  }

  tokenize(inputs: Inputs, options: TokenizeFields) {
    return this.#send("/tokenize", JSON_ONLY, inputs, options, tokens);
  }

  get keyed(): boolean {
    return this.#key !== null;
  }

  async npz(inputs: Inputs, { signal, dtype, ...fields }: AttentionOptions): Promise<Blob> {
    const response = await fetch(new URL(`attention${dtype === undefined ? "" : `?dtype=${dtype}`}`, this.url), {
      method: "POST",
      headers: {
        Accept: "application/x-npz",
        "Content-Type": "application/json",
        ...(this.#key === null ? {} : { Authorization: `Bearer ${this.#key}` }),
      },
      body: JSON.stringify({ inputs, ...fields }),
      signal: signal ?? null,
    });
    if (response.ok) return response.blob();
    const problem = (await response.json().catch(() => ({}))) as { detail?: string };
    throw new Error(problem.detail ?? `The service answered with status ${response.status}.`);
  }

  async assets(): Promise<Assets> {
    const style = document.querySelector<HTMLLinkElement>('link[rel="stylesheet"]')!.href;
    const [script, css] = await Promise.all([import.meta.url, style].map(async (url) => (await fetch(url)).text()));
    return { script: script!, style: css! };
  }

  #send<T>(
    path: string,
    accept: string,
    inputs: Inputs,
    { signal, ...fields }: TokenizeFields | AttentionOptions,
    read: (item: Json, reading: Reading) => T,
  ): Promise<Answer<T>> {
    const wire = { path, accept, body: JSON.stringify({ inputs, ...fields }) };
    return fetchWhole(this.#connection, wire, signal, (headers, content) => {
      const [meta, arrays] = unpack(headers, content);
      // Statistics alone have layers and heads.
      const reading = { axes: meta["axes"] ?? AXES.slice(0, 2), scale: meta["scale"] ?? 1, precision: "float32" };
      const items = meta["data"].map((item: Json, i: number) => read({ ...item, ...arrays.get(i) }, reading));
      return new Answer(meta["model"], items, meta["usage"], meta["max_error"] ?? null, [], null);
    });
  }

  get #connection(): Connection {
    const headers = new Headers(this.#key === null ? {} : { Authorization: `Bearer ${this.#key}` });
    return { url: this.url.replace(/\/+$/, ""), headers, timeoutMs: TIMEOUT_MS, retries: RETRIES, concurrency: 1 };
  }
}

function stored(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}
