/** A service over HTTP. */

import { connectionTo, ServiceSource } from "./service.js";
import type { Assets, Source } from "./source.js";

const KEY = "headlight-key";

/** The service at a URL. The key is kept in the tab's own storage, never in the URL. */
export class HttpSource extends ServiceSource implements Source {
  #key = stored();

  constructor(readonly url: string) {
    super();
  }

  useKey(key: string): void {
    try {
      sessionStorage.setItem(KEY, key);
    } catch {
      // Storage is turned off: the key is kept until the page is left.
    }
    this.#key = key;
  }

  get keyed(): boolean {
    return this.#key !== null;
  }

  async assets(): Promise<Assets> {
    const style = document.querySelector<HTMLLinkElement>('link[rel="stylesheet"]')!.href;
    const [script, css] = await Promise.all([import.meta.url, style].map(async (url) => (await fetch(url)).text()));
    return { script: script!, style: css! };
  }

  protected get connection() {
    return connectionTo(this.url.replace(/\/+$/, ""), this.#key);
  }
}

function stored(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}
