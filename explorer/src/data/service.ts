/**
 * A service, through the parts of the client that send one request and read its response: those that split calls
 * would be a twelfth of the page.
 */

import { AXES, attentionMaps, type Json, type Reading, tokens } from "../../../client/js/src/answers.js";
import { FILE, JSON_ONLY, unpack } from "../../../client/js/src/calls.js";
import type { AttentionOptions, Info, Inputs } from "../../../client/js/src/index.js";
import { type Connection, fetchWhole, type Wire } from "../../../client/js/src/sending.js";
import { type Labels, readLayer } from "./maps.js";
import { asHalves } from "./packed.js";
import type { Answer, TextFields } from "./source.js";
import type { Question } from "./why.js";

const NPZ = "application/x-npz";
/** For so long a busy service is asked again, which names times less than a minute away; then the page says so. */
const RETRIES = { count: 5, ms: 60_000 };
const TIMEOUT_MS = 60_000;

/** What sources share that ask a service, however they reach it. All throw a HeadlightError. */
export abstract class ServiceSource {
  protected abstract get connection(): Connection;

  info(): Promise<Info> {
    return fetchWhole(this.connection, { path: "/info" }, undefined, (_, content) => {
      const info = parsed(content) as Info;
      if (!Array.isArray(info.models)) throw new Error("models is missing");
      return info;
    });
  }

  attention(inputs: Inputs, options: AttentionOptions) {
    return this.#ask(wireOf("/attention", FILE, inputs, options), options.signal, attentionMaps);
  }

  layer(inputs: Inputs, options: AttentionOptions) {
    return this.#ask(
      wireOf("/attention", FILE, inputs, options),
      options.signal,
      (item, { axes }) => readLayer({ ...item, axes } as Labels, asHalves(item["attention"].data)),
      true,
    );
  }

  tokenize(inputs: Inputs, options: TextFields) {
    return this.#ask(wireOf("/tokenize", JSON_ONLY, inputs, options), options.signal, tokens);
  }

  ask({ path, body }: Question, signal: AbortSignal): Promise<Json> {
    const wire = { path, accept: JSON_ONLY, body: JSON.stringify(body) };
    return fetchWhole(this.connection, wire, signal, (_, content) => {
      const answer = parsed(content) as Json;
      if (answer["usage"] === undefined) throw new Error("usage is missing");
      return answer;
    });
  }

  npz(inputs: Inputs, options: AttentionOptions): Promise<Blob> {
    const wire = wireOf("/attention", NPZ, inputs, options);
    return fetchWhole(this.connection, wire, options.signal, (_, content) => new Blob([content as BlobPart]));
  }

  #ask<T>(
    wire: Wire,
    signal: AbortSignal | undefined,
    read: (item: Json, reading: Reading) => T,
    halves = false,
  ): Promise<Answer<T>> {
    return fetchWhole(this.connection, wire, signal, (headers, content) => {
      const [meta, arrays] = unpack(headers, content, halves);
      // Statistics alone have layers and heads.
      const reading = { axes: meta["axes"] ?? AXES.slice(0, 2), scale: meta["scale"] ?? 1, precision: "float32" };
      const items = meta["data"].map((item: Json, i: number) => read({ ...item, ...arrays.get(i) }, reading));
      return { items, usage: meta["usage"] };
    });
  }
}

function parsed(content: Uint8Array): unknown {
  return JSON.parse(new TextDecoder().decode(content));
}

/** How to reach a service, without a slash at the end of its URL. */
export function connectionTo(url: string, key: string | null, send?: typeof fetch): Connection {
  const headers = new Headers(key === null ? {} : { Authorization: `Bearer ${key}` });
  const own = send === undefined ? {} : { fetch: send };
  return { url, headers, timeoutMs: TIMEOUT_MS, retries: RETRIES, concurrency: 1, ...own };
}

function wireOf(
  path: string,
  accept: string,
  inputs: Inputs,
  { signal: _, dtype, ...fields }: AttentionOptions,
): Wire {
  const query = dtype === undefined ? "" : `?dtype=${dtype}`;
  return { path: path + query, accept, body: JSON.stringify({ inputs, ...fields }) };
}
