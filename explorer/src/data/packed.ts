/**
 * What a file that holds the explorer and its maps has in it, as JSON: answers of `POST /attention` as the client
 * reads them, their tensors packed. The Python client writes the same.
 */

import { fromFloat16 } from "../../../client/js/src/arrays.js";
import { type AttentionMaps, type AttentionOptions, type Info, Tensor } from "../../../client/js/src/index.js";
import type { State } from "../state/fields.js";
import type { Json } from "./why.js";

/** Maps are in half precision, as they came; statistics are numbers. */
export type PackedTensor =
  | { readonly shape: readonly number[]; readonly float16: string }
  | { readonly shape: readonly number[]; readonly values: readonly (number | null)[] };

export type PackedItem = Record<string, unknown>;

export interface FileData {
  readonly version: 1;
  /** With the one model that was asked. */
  readonly info: Info;
  readonly state: Partial<State>;
  /** Which tokens ran and what weights are, as asked of `POST /attention`. */
  readonly fields: AttentionOptions;
  readonly tokens: number;
  readonly overview: PackedItem;
  /** Each of one layer. */
  readonly layers: readonly PackedItem[];
  /** Of other routes, by path and body. */
  readonly answers?: Readonly<Record<string, Json>>;
}

/** Pack an item: statistics whole, everything else in half precision. */
export function pack(item: AttentionMaps): PackedItem {
  const entries = Object.entries(item).map(([name, value]) => {
    if (value instanceof Tensor) return [name, packedMaps(value as Tensor)];
    if (name === "summary" && value !== null) {
      const statistics = Object.entries(value as Record<string, Tensor>);
      return [
        name,
        Object.fromEntries(statistics.map(([key, { shape, data }]) => [key, { shape, values: [...data] }])),
      ];
    }
    return [name, value];
  });
  return Object.fromEntries(entries);
}

/** Unpack an item: nothing is lost of maps that came in half precision. */
export function unpack(item: PackedItem): AttentionMaps {
  return unpacked(item) as AttentionMaps;
}

function unpacked(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const { shape, float16, values } = value as { shape?: number[]; float16?: string; values?: (number | null)[] };
  if (shape !== undefined && values !== undefined) {
    return new Tensor(
      Float32Array.from(values, (number) => number ?? Number.NaN),
      shape,
    );
  }
  if (shape !== undefined && float16 !== undefined) {
    return new Tensor(fromFloat16(halvesOf(float16)), shape);
  }
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, unpacked(one)]));
}

/** The bits of numbers in half precision. */
export function halvesOf(float16: string): Uint16Array {
  return new Uint16Array(Uint8Array.from(atob(float16), (character) => character.charCodeAt(0)).buffer);
}

/** Numbers in half precision; as they came, unless one is beyond its range: then the service sends all in float32. */
export function asHalves(numbers: Uint16Array | Float32Array): Uint16Array {
  return numbers instanceof Uint16Array ? numbers : Uint16Array.from(numbers, toHalf);
}

function packedMaps({ shape, data }: Tensor): PackedTensor {
  const bytes = new Uint8Array(Uint16Array.from(data, toHalf).buffer);
  let binary = "";
  // Arguments of a call are limited in number.
  for (let i = 0; i < bytes.length; i += 1 << 15) binary += String.fromCharCode(...bytes.subarray(i, i + (1 << 15)));
  return { shape, float16: btoa(binary) };
}

const word = new Uint32Array(1);
const single = new Float32Array(word.buffer);

/** A number as IEEE 754 binary16, to the nearest; beyond its range infinite. */
export function toHalf(number: number): number {
  single[0] = number;
  const bits = word[0]!;
  const sign = (bits >>> 16) & 0x8000;
  const size = Math.abs(number);
  if (Number.isNaN(number)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 2 ** -14) {
    // Numbers from ½ to 1 have steps of this size: the sum is rounded to the nearest.
    single[0] = size + 0.5;
    return sign | (word[0]! - 0x3f000000);
  }
  // Adding to the bits carries over from the fraction to the exponent.
  const magnitude = (bits & 0x7fffffff) - 0x38000000;
  return sign | ((magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13);
}
