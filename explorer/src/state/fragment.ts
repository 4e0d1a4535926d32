/**
 * The state as a URL's fragment, which browsers send to no server: texts stay out of logs and referrers. It is the
 * fields that differ from their initial values, in JSON, deflated, in the URL's own base64 alphabet, after a version.
 */

import { changedFields, parseState, type State } from "./fields.js";

const VERSION = "1.";
/** Of the JSON: a small fragment could inflate to gigabytes. */
const MAX_BYTES = 4 << 20;

/** Write a state as a fragment without its "#"; the initial state is the empty one. */
export async function toFragment(state: State): Promise<string> {
  const json = JSON.stringify(changedFields(state));
  if (json === "{}") return "";
  const packed = await piped(new TextEncoder().encode(json), new CompressionStream("deflate-raw"), Infinity);
  return VERSION + toBase64(packed);
}

/** Read a fragment. What is not one of ours, or damaged, is the initial state. */
export async function fromFragment(fragment: string): Promise<State> {
  const content = fragment.replace(/^#/, "");
  if (!content.startsWith(VERSION)) return parseState(null);
  try {
    const packed = fromBase64(content.slice(VERSION.length));
    const json = await piped(packed, new DecompressionStream("deflate-raw"), MAX_BYTES);
    return parseState(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(json)));
  } catch {
    return parseState(null);
  }
}

type Bytes = Uint8Array<ArrayBuffer>;

async function piped(bytes: Bytes, through: GenericTransformStream, most: number): Promise<Bytes> {
  const writer = through.writable.getWriter();
  // A damaged stream fails both of its ends: what reads reports it.
  const written = writer.write(bytes).then(() => writer.close());
  written.catch(() => undefined);
  const pieces: Bytes[] = [];
  let size = 0;
  const reader: ReadableStreamDefaultReader<Bytes> = through.readable.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new RangeError(`it has more than ${most} bytes`);
    }
    pieces.push(value);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}

function toBase64(bytes: Bytes): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64(text: string): Bytes {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}
