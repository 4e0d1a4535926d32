/**
 * Reads a safetensors file: the length of the header, the header in JSON, and the tensors end to end
 * (github.com/huggingface/safetensors, "Format"). Typed arrays are little-endian on every platform that runs
 * JavaScript today, as the file is.
 */

import { fromFloat16, product, Tensor, type Numbers } from "./arrays.js";

const LENGTH_BYTES = 8;
const TYPES: Record<string, { bytes: number; read: (buffer: ArrayBuffer, count: number) => Numbers }> = {
  F32: { bytes: 4, read: (buffer) => new Float32Array(buffer) },
  F16: { bytes: 2, read: (buffer) => fromFloat16(new Uint16Array(buffer)) },
  I32: { bytes: 4, read: (buffer) => new Int32Array(buffer) },
  I8: { bytes: 1, read: (buffer) => new Int8Array(buffer) },
  U8: { bytes: 1, read: (buffer) => new Uint8Array(buffer) },
};

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

export interface SafetensorsFile {
  metadata: Record<string, string>;
  tensors: Map<string, Tensor<Numbers>>;
}

/**
 * Read a file; float16 becomes float32, or with `halves` stays as its bits, in the memory of the file if they stand at
 * even bytes of it. Throws an Error if the file is not whole.
 */
export function readSafetensors(content: Uint8Array, halves = false): SafetensorsFile {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const start = content.length < LENGTH_BYTES ? NaN : LENGTH_BYTES + Number(view.getBigUint64(0, true));
  if (!(start <= content.length)) throw new Error("the file is shorter than its header");
  const header = JSON.parse(new TextDecoder().decode(content.subarray(LENGTH_BYTES, start)));
  const { __metadata__: metadata = {}, ...entries } = header as Record<string, unknown>;
  const tensors = new Map<string, Tensor<Numbers>>();
  for (const [name, entry] of Object.entries(entries as Record<string, Entry>)) {
    tensors.set(name, tensor(name, entry, content.subarray(start), halves));
  }
  return { metadata: metadata as Record<string, string>, tensors };
}

/** Each tensor but one of halves is a copy, so that keeping one does not keep the whole response in memory. */
function tensor(name: string, entry: Entry, data: Uint8Array, halves: boolean): Tensor<Numbers> {
  const type = TYPES[entry.dtype];
  if (type === undefined) throw new Error(`tensor ${name} has the unknown type ${entry.dtype}`);
  const [begin, end] = entry.data_offsets;
  const count = product(entry.shape);
  if (end - begin !== count * type.bytes || begin < 0 || end > data.length) {
    throw new Error(`tensor ${name} does not lie within the file`);
  }
  const place = data.byteOffset + begin;
  if (halves && entry.dtype === "F16") {
    // The service pads headers; other files, and views of longer ones, may have halves at odd bytes.
    const bits = place % type.bytes === 0 ? data.subarray(begin, end) : data.slice(begin, end);
    return new Tensor(new Uint16Array(bits.buffer, bits.byteOffset, count), entry.shape);
  }
  return new Tensor(type.read(data.slice(begin, end).buffer as ArrayBuffer, count), entry.shape);
}
