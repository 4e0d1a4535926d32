/** Converts a caller's inputs to rows of JSON, each checked before anything is sent. */

import { InputsError } from "./errors.js";

const SHOWN = 60; // characters of a value that a message quotes

/** An input as JSON, and the tokens it is counted as when calls are split; none for texts, which are estimated. */
export interface Row {
  readonly json: string;
  readonly bytes: number;
  readonly ids?: number;
}

const encoder = new TextEncoder();

export function byteLength(text: string): number {
  return encoder.encode(text).length;
}

/** Texts, or pairs of texts, as JSON; throws an InputsError that names the first that is neither. */
export function textRows(inputs: unknown, name: string, pairs: boolean): Row[] {
  const values = typeof inputs === "string" ? [inputs] : listed(inputs, name);
  values.forEach((value, i) => check(value, i, typeof values[0] === "string" || !pairs, name));
  return values.map((value) => row(JSON.stringify(value)));
}

/** Lists of token ids as JSON: one list of numbers is one text. Throws an InputsError. */
export function idRows(tokenIds: unknown, name: string): Row[] {
  const values = listed(isTyped(tokenIds) ? [tokenIds] : tokenIds, name);
  const texts = values.every((value) => typeof value === "number") ? [values] : values;
  return texts.map((ids, i) => {
    if (!Array.isArray(ids) && !isTyped(ids)) {
      throw new InputsError(`${name}[${i}] is ${shown(ids)}, not a list of ids.`, `${name}.${i}`);
    }
    const list = Array.from(ids as ArrayLike<number>);
    return { ...row(JSON.stringify(list)), ids: list.length };
  });
}

/** The edges of each of several inputs as JSON; throws an InputsError unless there is a list for each. */
export function edgeRows(edges: readonly unknown[], inputs: number): Row[] {
  if (edges.length === inputs && !edges.some((one) => typeof (one as number[])[0] === "number"))
    return edges.map((one) => row(JSON.stringify(one)));
  const detail = `edges has ${edges.length} items, and there are ${inputs} inputs: pass a list of edges for each.`;
  throw new InputsError(detail, "edges");
}

function row(json: string): Row {
  return { json, bytes: byteLength(json) };
}

function listed(inputs: unknown, name: string): unknown[] {
  if (typeof inputs !== "object" || inputs === null || !(Symbol.iterator in inputs) || inputs instanceof Map) {
    throw new InputsError(`${name} is ${shown(inputs)}, which cannot be sent: pass a string or a list.`, name);
  }
  const values = [...(inputs as Iterable<unknown>)];
  if (values.length === 0) throw new InputsError(`${name} is empty: pass at least one text.`, name);
  return values;
}

function check(value: unknown, i: number, texts: boolean, name: string): void {
  const place = `${name}[${i}]`;
  const wrong = (detail: string) => new InputsError(`${place} ${detail}`, `${name}.${i}`);
  const isPair = Array.isArray(value) && value.length === 2 && value.every((one) => typeof one === "string");
  if (typeof value !== "string" && !isPair) throw wrong(`is ${shown(value)}, not a string: drop it or use "".`);
  if (isPair === texts) {
    const [this_, other] = isPair ? ["a pair", "a text"] : ["a text", "a pair"];
    throw wrong(`is ${this_}, and ${other} is expected: pass only texts or only pairs.`);
  }
  // A half of a surrogate pair has no form in UTF-8: such a text was cut in the middle of a character.
  if (/\p{Surrogate}/u.test(isPair ? value.join("") : (value as string))) {
    throw wrong("has a lone surrogate, half of a character: repair it with toWellFormed().");
  }
}

function isTyped(value: unknown): boolean {
  return ArrayBuffer.isView(value) && !(value instanceof DataView);
}

function shown(value: unknown): string {
  if (value === null || value === undefined || Number.isNaN(value)) return String(value);
  const text = JSON.stringify(value) ?? String(value);
  return `${text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}…`} (${typeof value})`;
}
