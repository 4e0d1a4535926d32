/** The service as the kernel of a notebook reaches it: requests are custom messages, answers come as buffers. */

import { connectionTo, ServiceSource } from "./service.js";
import type { Source } from "./source.js";

/** What anywidget gives to a widget's page. */
export interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, listener: (content: unknown, buffers: readonly DataView[]) => void): void;
  off(event: string, listener: (content: unknown, buffers: readonly DataView[]) => void): void;
}

/** The answer to a request, or why there is none; the body is a buffer beside it. */
interface Answered {
  readonly id: number;
  readonly status?: number;
  readonly headers?: Record<string, string>;
  readonly error?: string;
}

/** Who waits for an answer. */
interface Waiting {
  readonly resolve: (response: Response) => void;
  readonly reject: (reason: unknown) => void;
}

/** Never asked: the kernel knows where the service is. */
const KERNEL = "http://kernel";
const MESSAGE = "msg:custom";
/** The event of another value of the trait with the state. */
export const CHANGED = "change:state";

let requests = 0;

/** The service behind a widget. The kernel has the key. */
export class KernelSource extends ServiceSource implements Source {
  readonly url: string;
  readonly keyed: boolean;
  readonly #waiting = new Map<number, Waiting>();

  constructor(readonly model: WidgetModel) {
    super();
    this.url = String(model.get("url"));
    this.keyed = model.get("keyed") === true;
    model.on(MESSAGE, this.#receive);
  }

  async assets() {
    return { script: String(this.model.get("_esm")), style: String(this.model.get("_css")) };
  }

  protected get connection() {
    return connectionTo(KERNEL, null, this.#fetch);
  }

  /** Stop listening. */
  close(): void {
    this.model.off(MESSAGE, this.#receive);
  }

  /** As `fetch`, of what the explorer asks: a path, an `Accept` and a body. */
  readonly #fetch = (input: RequestInfo | URL, { headers, body, signal }: RequestInit = {}): Promise<Response> =>
    new Promise((resolve, reject) => {
      const id = ++requests;
      this.#waiting.set(id, { resolve, reject });
      signal?.addEventListener("abort", () => {
        this.#waiting.delete(id);
        reject(signal.reason);
      });
      const path = String(input).slice(KERNEL.length);
      this.model.send({ id, path, accept: new Headers(headers).get("Accept"), body: body ?? null });
    });

  readonly #receive = (content: unknown, buffers: readonly DataView[]): void => {
    const { id, status, headers, error } = content as Answered;
    // Each view of the widget gets all answers.
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    this.#waiting.delete(id);
    if (error !== undefined) waiting.reject(new TypeError(error));
    else
      waiting.resolve(
        new Response((buffers[0] as BufferSource | undefined) ?? null, { status: status!, headers: headers! }),
      );
  };
}
