/**
 * A service over HTTP, through the parts of the client that send one request and read its response: those that split
 * calls would be a twelfth of the page.
 */

import { attentionMaps, tokens } from "../../../client/js/src/answers.js";
import { Call, FILE, JSON_ONLY } from "../../../client/js/src/calls.js";
import type { AttentionOptions, Info, Inputs } from "../../../client/js/src/index.js";
import { textRows } from "../../../client/js/src/inputs.js";
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

  async attention(inputs: Inputs, options: AttentionOptions) {
    return this.#send(new Call("/attention", FILE, ...given(inputs), options, attentionMaps));
  }

  async tokenize(inputs: Inputs, options: TokenizeFields) {
    return this.#send(new Call("/tokenize", JSON_ONLY, ...given(inputs), options, tokens));
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

  #send<T>(call: Call<T>) {
    const read = (headers: Headers, content: Uint8Array) => call.answer(call.whole, headers, content);
    return fetchWhole(this.#connection, call.request(call.whole), call.signal, read);
  }

  get #connection(): Connection {
    const headers = new Headers(this.#key === null ? {} : { Authorization: `Bearer ${this.#key}` });
    return { url: this.url.replace(/\/+$/, ""), headers, timeoutMs: TIMEOUT_MS, retries: RETRIES, concurrency: 1 };
  }
}

function given(inputs: Inputs) {
  return ["inputs", textRows(inputs, "inputs", true), typeof inputs === "string"] as const;
}

function stored(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}
