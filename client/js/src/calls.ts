/** Writes requests and parses responses, without sending anything. */

import { Answer, AXES, type Axis, type Json, type Reading } from "./answers.js";
import { isProblem, HeadlightError, unreadable, type Rows } from "./errors.js";
import type { AttentionFields, CallOptions, MapFields } from "./fields.js";
import { byteLength, edgeRows, type Row } from "./inputs.js";
import { readSafetensors } from "./safetensors.js";
import type { Wire } from "./sending.js";

// JSON is the fallback for a service without these formats: it is parsed too, only larger.
export const FILE = "application/x-safetensors, application/json;q=0.5";
export const JSON_ONLY = "application/json";
export const LINES = "application/x-ndjson, application/json;q=0.5";

type Given = CallOptions & { dtype?: string; model?: string; precision?: string } & Record<string, any>;
type Read<T> = (item: Json, reading: Reading) => T;

/** A call: its route, rows and options, and how to parse the items of its response. */
export class Call<T> {
  readonly signal: AbortSignal | undefined;
  readonly model: string | undefined;
  /** The size of a body without its inputs and the commas between them. */
  readonly frameBytes: number;
  readonly rows: readonly Row[];
  readonly #edges: readonly Row[] | null = null;
  readonly #query: string;
  readonly #options: string;
  readonly #reading: Reading;

  /** `complete` says whether the answer has an item for each input. */
  constructor(
    readonly path: string,
    readonly accept: string,
    readonly field: string,
    rows: readonly Row[],
    readonly alone: boolean,
    options: object,
    readonly read: Read<T>,
    readonly complete = true,
  ) {
    const { signal, dtype, ...given } = options as Given;
    const { edges, ...rest } = given;
    // Those of several inputs are sent with the part that their input is in.
    const fields = rows.length > 1 ? rest : given;
    if (edges && rows.length > 1) this.#edges = edgeRows(edges, rows.length);
    this.rows = rows;
    this.signal = signal;
    this.model = fields.model;
    this.#query = dtype === undefined ? "" : `?dtype=${encodeURIComponent(dtype)}`;
    const members = JSON.stringify(fields).slice(1, -1);
    this.#options = members && `,${members}`;
    const lists = this.#edges;
    if (lists) this.rows = rows.map((row, i) => ({ ...row, bytes: row.bytes + (lists[i] as Row).bytes + 1 }));
    this.frameBytes = byteLength(`{"${field}":[]${this.#options},"edges":[]}`);
    this.#reading = { axes: axesOf(given.attention ?? given), scale: 1, precision: fields.precision ?? "float32" };
  }

  get whole(): Rows {
    return { start: 0, stop: this.rows.length };
  }

  /** The request for a part of the inputs. */
  request({ start, stop }: Rows): Wire {
    const part = (rows: readonly Row[]) => rows.slice(start, stop).map(({ json }) => json).join(",");
    const inputs = part(this.rows);
    const edges = this.#edges ? `,"edges":[${part(this.#edges)}]` : "";
    const body = `{"${this.field}":${this.alone ? inputs : `[${inputs}]`}${this.#options}${edges}}`;
    return { path: this.path + this.#query, accept: this.accept, body };
  }

  /** Parse the whole response to a part of the inputs, a file or JSON. */
  answer(rows: Rows, headers: Headers, content: Uint8Array): Answer<T> {
    const [meta, arrays] = unpack(headers, content);
    const reading = { ...this.#reading, axes: meta.axes ?? this.#reading.axes, scale: meta.scale ?? 1 };
    const items: Json[] = meta.data.map((item: Json, i: number) => ({ ...item, ...arrays.get(i) }));
    if (this.complete) checkCount(items.length, rows);
    const id = headers.get("x-request-id");
    return new Answer(
      meta.model,
      items.map((item) => this.read(placed(item, rows), reading)),
      meta.usage,
      meta.max_error ?? null,
      id === null ? [] : [id],
      meta.method ?? null,
    );
  }

  /** Parse the items of a streamed response to a part of the inputs, as they arrive. */
  async *lines(rows: Rows, headers: Headers, pieces: AsyncIterable<Uint8Array>): AsyncGenerator<T, void, void> {
    try {
      if (mediaType(headers) !== "application/x-ndjson") {
        yield* this.answer(rows, headers, await joinedBytes(pieces));
        return;
      }
      let ended = false;
      for await (const line of linesOf(pieces)) {
        const document = JSON.parse(line);
        if (isProblem(document)) throw new HeadlightError(document.status ?? null, document);
        ended = "usage" in document;
        if (!ended) yield this.read(placed(document, rows), this.#reading);
      }
      if (!ended) throw new Error("it ends without the last line, which has the usage");
    } catch (error) {
      throw unreadable(headers, error);
    }
  }
}

/** Join the answers to the parts of a call, in order. */
export function joined<T>(answers: readonly Answer<T>[]): Answer<T> {
  const [first] = answers as [Answer<T>];
  const errors = answers.map(({ maxError }) => maxError);
  return new Answer(
    first.model,
    answers.flatMap(({ items }) => items),
    { input_tokens: answers.reduce((sum, { usage }) => sum + usage.input_tokens, 0) },
    errors.includes(null) ? null : Math.max(...(errors as number[])),
    answers.flatMap(({ requestIds }) => requestIds),
    first.method,
  );
}

/** Check that a response has one item, or row, for each input. */
export function checkCount(count: number | undefined, { start, stop }: Rows): void {
  if (count !== stop - start) throw new Error(`it has ${count} items, not ${stop - start}`);
}

/** Parse a file or JSON: the document, and the tensors of each item by their names; `halves` is for `readSafetensors`. */
export function unpack(headers: Headers, content: Uint8Array, halves = false): [Json, Map<number, Json>] {
  if (mediaType(headers) !== "application/x-safetensors") {
    return [JSON.parse(new TextDecoder().decode(content)), new Map()];
  }
  const { metadata, tensors } = readSafetensors(content, halves);
  const items = new Map<number, Json>();
  for (const [member, tensor] of tensors) {
    const [index, ...rest] = member.split(".");
    const name = rest.join(".");
    const item = items.get(Number(index)) ?? {};
    // An item has `chunks` in JSON too, which says where they are.
    items.set(Number(index), Object.assign(item, { [name === "chunks" ? "chunks.embeddings" : name]: tensor }));
  }
  const document = JSON.parse(metadata["headlight"] ?? "null");
  return [{ ...document, similarities: tensors.get("similarities") }, items];
}

/** Count an item's index over all inputs of the call. */
function placed(item: Json, { start }: Rows): Json {
  return { ...item, index: item.index + start };
}

/** The axes of the maps that options ask for. */
function axesOf({ maps, aggregate, edges }: MapFields & Pick<AttentionFields, "edges">): readonly Axis[] {
  if (maps === false) return AXES.slice(0, 2);
  const first = AXES.slice(0, aggregate === "rollout" ? 0 : aggregate === "mean" || aggregate === "max" ? 1 : 2);
  return [...first, ...(edges ? (["edge"] as const) : AXES.slice(2))];
}

function mediaType(headers: Headers): string {
  return (headers.get("content-type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
}

/** Lines end at a line feed alone. A long line is joined once, not for each of its pieces. */
async function* linesOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, void> {
  const decoder = new TextDecoder();
  let begun: string[] = [];
  for await (const piece of pieces) {
    const [first, ...more] = decoder.decode(piece, { stream: true }).split("\n") as [string, ...string[]];
    begun.push(first);
    for (const next of more) {
      const line = begun.join("");
      begun = [next];
      if (line.trim()) yield line;
    }
  }
  const last = begun.join("") + decoder.decode();
  if (last.trim()) yield last;
}

async function joinedBytes(pieces: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const piece of pieces) parts.push(piece);
  return new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
}
