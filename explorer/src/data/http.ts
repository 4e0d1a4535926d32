/** A service over HTTP, through the client. */

import { type AttentionOptions, Headlight, type Inputs } from "../../../client/js/src/index.js";
import type { Assets, Source, TokenizeFields } from "./source.js";

const KEY = "headlight-key";
/** A busy service is asked again for this long; then the page says so. */
const RETRY_MS = 10_000;

/** The service at a URL. The key is kept in the tab's own storage, never in the URL. */
export class HttpSource implements Source {
  readonly kind = "http";
  #key = stored();
  #client: Headlight;

  constructor(readonly url: string) {
    this.#client = this.#connect(this.#key);
  }

  useKey(key: string): void {
    try {
      sessionStorage.setItem(KEY, key);
    } catch {
      // Storage is turned off: the key is kept until the page is left.
    }
    this.#key = key;
    this.#client = this.#connect(key);
  }

  info() {
    return this.#client.info();
  }

  attention(inputs: Inputs, options: AttentionOptions) {
    return this.#client.attention(inputs, options);
  }

  tokenize(inputs: Inputs, options: TokenizeFields) {
    return this.#client.tokenize(inputs, options);
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

  #connect(key: string | null): Headlight {
    return new Headlight(this.url, { retryForMs: RETRY_MS, ...(key === null ? {} : { apiKey: key }) });
  }
}

function stored(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}
