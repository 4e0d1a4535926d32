import assert from "node:assert/strict";
import { test } from "node:test";
import { type AttentionMaps, Tensor } from "../../client/js/src/index.js";
import { EmbeddedSource } from "../src/data/embedded.js";
import { mapOf } from "../src/data/maps.js";
import { type FileData, pack, toHalf, unpack } from "../src/data/packed.js";
import { cellsOf } from "../src/export/cells.js";
import { codeOf } from "../src/export/code.js";
import { csvOf } from "../src/export/csv.js";
import { documentOf, tooLarge } from "../src/export/html.js";
import { wrapped } from "../src/export/title.js";

const item = {
  tokens: ["a", "b"],
  axes: ["layer", "head", "query", "key"],
  layers: [3],
  heads: [0, 1],
  queries: [0, 1],
  keys: [0, 1],
  attention: new Tensor(Float32Array.of(0.5, 0.25, 1, 0, 0.125, 2, 3, -4), [1, 2, 2, 2]),
  summary: { entropy: new Tensor(Float32Array.of(0.1, Number.NaN), [1, 2]) },
} as unknown as AttentionMaps;
const data = {
  version: 1,
  info: { models: [{ name: "m" }] },
  state: { text: "</script><b>" },
  fields: { model: "m" },
  tokens: 2,
  overview: pack(item),
  layers: [pack(item)],
} as unknown as FileData;

test("An item that was packed and written as JSON is the same", () => {
  assert.deepEqual(unpack(JSON.parse(JSON.stringify(pack(item)))), item);
});

test("Numbers become the nearest of half precision", () => {
  const cases: [number, number][] = [
    [0, 0],
    [1, 0x3c00],
    [-2, 0xc000],
    [65504, 0x7bff],
    [65520, 0x7c00],
    [2 ** -24, 1],
    [2 ** -14, 0x0400],
    [1 + 2 ** -11, 0x3c00],
    [1 + 3 * 2 ** -11, 0x3c02],
    [Number.NaN, 0x7e00],
  ];
  for (const [number, half] of cases) assert.equal(toHalf(number), half, String(number));
});

test("A file gives the rows and heads of its layers, and says what it does not hold", async () => {
  const source = new EmbeddedSource(data);
  const text = data.state.text!;
  const row = await source.attention(text, { model: "m", layers: [3], heads: [1], queries: [0], dtype: "float16" });
  assert.deepEqual([...row.items[0]!.attention!.data], [0.125, 2]);
  assert.deepEqual(row.items[0]!.heads, [1]);
  const layer = (await source.layer(text, { model: "m", layers: [3], dtype: "float16" })).items[0]!;
  assert.deepEqual([...mapOf(layer, 1)], [0.125, 2, 3, -4]);
  await assert.rejects(source.attention(text, { model: "m", layers: [4] }), /holds the maps of layer 3/);
  await assert.rejects(source.attention(text, { model: "m", layers: [3], level: "word" }), /as they were saved/);
  await assert.rejects(source.attention("another", { model: "m", layers: [3] }), /as they were saved/);
  await assert.rejects(source.attention("another", { summary: true }), /as they were saved/);
});

test("No text of the file ends an element", () => {
  const page = documentOf(data, { script: 'x = "</script>"', style: "a {}" });
  assert.equal(page.match(/<\/script>/g)!.length, 2);
  assert.match(page, /x = "\\x3c\/script>"/);
});

test("A map becomes a path for each colour, of the runs that have it", () => {
  const [red, blue] = [
    [255, 0, 0, 255],
    [0, 0, 255, 128],
  ];
  const data = Uint8ClampedArray.from([red, red, blue, blue, red, [0, 0, 0, 0]].flat());
  const drawn = cellsOf({ data, width: 3, height: 2 }, [10, 20, 6, 4]);
  assert.equal(
    drawn,
    '<g shape-rendering="crispEdges"><path fill="rgb(255,0,0)" d="M10 20H14V22H10ZM12 22H14V24H12Z"/>' +
      '<path fill="rgb(0,0,255)" fill-opacity="0.5" d="M14 20H16V22H14ZM10 22H12V24H10Z"/></g>',
  );
});

test("A table as CSV has all digits, quotes what needs it, and leaves out what is no number", () => {
  const rows = [
    ["head", '“a” → "b", c'],
    [0, 0.1 + 0.2],
    [1, Number.NaN],
  ];
  assert.equal(csvOf(rows), 'head,"“a” → ""b"", c"\r\n0,0.30000000000000004\r\n1,\r\n');
});

test("A title breaks between words, and a word that is too long stands alone", () => {
  assert.deepEqual(
    wrapped("a bb verylongword c d", 4, ({ length }) => length),
    ["a bb", "verylongword", "c d"],
  );
});

test("A file above 25 MB is refused in a sentence", () => {
  assert.equal(tooLarge(25_000_000), null);
  assert.match(tooLarge(31_000_000)!, /31 MB, more than 25 MB/);
});

test("Quotes in texts do not end those of the code around them", () => {
  const asked = { url: "http://s/x/", inputs: `it's "so"`, options: { layers: [1], dtype: "float16" as const } };
  const curl = codeOf("curl", { ...asked, keyed: true });
  assert.match(curl, /'http:\/\/s\/x\/attention'/);
  assert.match(curl, /-d '\{"inputs":"it'\\''s \\"so\\"","layers":\[1\]\}'/);
  assert.match(curl, /Bearer \$HEADLIGHT_API_KEY/);
  assert.match(codeOf("python", { ...asked, keyed: false }), /"it's \\"so\\"",\n {8}layers=\[1\],/);
  assert.doesNotMatch(codeOf("bertviz", { ...asked, options: { aggregate: "rollout" }, keyed: false }), /aggregate/);
});
