/** A service over HTTP, through the client. */

import { type AttentionOptions, Headlight, type Inputs } from "../../../client/js/src/index.js";
import type { Source, TokenizeFields } from "./source.js";

const KEY = "headlight-key";
/** A busy service is asked again for this long; then the page says so. */
const RETRY_MS = 10_000;

/** The service at a URL. The key is kept in the tab's own storage, never in the URL. */
export class HttpSource implements Source {
  readonly kind = "http";
  #client: Headlight;

  constructor(readonly url: string) {
    this.#client = this.#connect(stored());
  }

  useKey(key: string): void {
    try {
      sessionStorage.setItem(KEY, key);
    } catch {
      // Storage is turned off: the key is kept until the page is left.
    }
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
