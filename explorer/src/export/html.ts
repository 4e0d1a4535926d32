/** One file that holds the explorer, an input and the maps of some layers, and needs no network. */

import type { AttentionOptions, Info } from "../../../client/js/src/index.js";
import type { Overview } from "../data/overview.js";
import { type FileData, type PackedItem, pack } from "../data/packed.js";
import * as requests from "../data/requests.js";
import type { Assets } from "../data/source.js";
import { changedFields, type HeadId } from "../state/fields.js";
import type { Store } from "../state/store.js";
import { escaped } from "./xml.js";

export const LARGEST_FILE = 25_000_000;
/** Of the explorer itself. */
const PAGE_BYTES = 300_000;

/** About how many bytes a file with this many layers has: two bytes a weight, in base64. */
export function estimatedBytes({ kept, heads, thumbnails }: Overview, layers: number): number {
  const weights = layers * heads * kept.length ** 2 + (thumbnails?.data.length ?? 0);
  return PAGE_BYTES + (weights * 2 * 4) / 3;
}

/** Why a file of this many bytes is refused, in a sentence; null if it is not. */
export function tooLarge(bytes: number): string | null {
  if (bytes <= LARGEST_FILE) return null;
  const size = (bytes / 1e6).toLocaleString("en", { maximumFractionDigits: 0 });
  return `The file would have ${size} MB, more than 25 MB: choose one layer, or a shorter text.`;
}

/** Ask for all that the file holds, one layer after the other, and write it. */
export async function htmlFile(
  store: Store,
  overview: Overview,
  layers: readonly number[],
  progress: (layers: number) => void,
): Promise<string> {
  const { subject } = overview;
  const { source } = store;
  const inputs = requests.inputsOf(subject);
  const whole = overview.thumbnails !== null;
  const first = await source.attention(inputs, { ...requests.overviewFields(subject, whole), dtype: "float16" });
  const packed: PackedItem[] = [];
  for (const layer of layers) {
    progress(packed.length);
    const { items } = await source.attention(inputs, requests.layerFields(subject, layer));
    // A rollout does not say of which layer it is.
    packed.push({ ...pack(items[0]!), layers: [layer] });
  }
  const data: FileData = {
    version: 1,
    info: { ...(store.info.peek() as Info), models: [subject.model] },
    state: { ...changedFields(store.state.peek()), model: subject.model.name, heads: headsIn(store, layers) },
    fields: fieldsOf(subject),
    tokens: first.usage.input_tokens,
    overview: pack(first.items[0]!),
    layers: packed,
    answers: store.loader.answersOf(subject),
  };
  return documentOf(data, await source.assets());
}

/** The chosen heads that have maps in the file. */
function headsIn({ heads, current }: Store, layers: readonly number[]): readonly HeadId[] {
  const own = heads.peek().filter(([layer]) => layers.includes(layer));
  return own.length > 0 ? own : [[layers[0]!, current.peek()[1]]];
}

/** The fields that all requests for maps of the file have. */
function fieldsOf(subject: requests.Subject): AttentionOptions {
  return { ...requests.textFields(subject), ...requests.weightFields(subject), ...requests.ablation(subject) };
}

/** Write the file. Nothing in the texts can end the elements that they stand in. */
export function documentOf(data: FileData, { script, style }: Assets): string {
  const json = JSON.stringify(data).replaceAll("<", "\\u003c");
  const title = escaped(`${data.state.text ?? ""} – headlight explorer`.slice(0, 120));
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<title>${title}</title>
<style>${style.replace(/<(?=\/style)/gi, "\\3c ")}</style>
</head>
<body>
<div id="headlight-explorer"></div>
<script type="application/json" id="headlight-data">${json}</script>
<script type="module">${inScript(script)}</script>
</body>
</html>
`;
}

/** Nothing is loaded, from anywhere. */
const POLICY =
  "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'";

/** A script in which no text ends its element, or begins a comment in it. */
function inScript(script: string): string {
  return script.replace(/<(?=\/script|!--)/gi, "\\x3c");
}
