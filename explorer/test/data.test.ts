import assert from "node:assert/strict";
import { test } from "node:test";
import { Cache } from "../src/data/cache.js";
import { rowOf } from "../src/data/maps.js";
import { asHalves, toHalf } from "../src/data/packed.js";
import * as requests from "../src/data/requests.js";
import { largest, weightText } from "../src/drawing/numbers.js";

const model = { name: "m", layers: 2, heads: 3, max_length: 4096 } as requests.Subject["model"];
const subject: requests.Subject = {
  model,
  text: "a",
  pair: null,
  prompt: null,
  weights: "probability",
  level: "token",
  special: "keep",
  ablated: [],
};

test("A cache drops what was used longest ago, and never what was just set", () => {
  const dropped: string[] = [];
  const cache = new Cache<string>(10, (value) => dropped.push(value));
  cache.set("a", "A", 4);
  cache.set("b", "B", 4);
  cache.get("a");
  cache.set("c", "C", 4);
  assert.deepEqual(dropped, ["B"]);
  cache.set("d", "D", 100);
  assert.deepEqual(dropped, ["B", "A", "C"]);
  assert.equal(cache.get("d"), "D");
  cache.resize("d", 3);
  assert.equal(cache.bytes, 3);
});

test("A row is where a token looks and a column what looks at it", () => {
  const maps = { heads: [5, 7], size: 2, halves: Uint16Array.from([0, 0, 0, 0, 1, 2, 3, 4], toHalf) };
  assert.deepEqual([...rowOf(maps, 7, 0, "from")], [1, 2]);
  assert.deepEqual([...rowOf(maps, 7, 0, "to")], [1, 3]);
  assert.throws(() => rowOf(maps, 6, 0, "from"), /6/);
});

test("Requests leave out what has no effect, which the service refuses", () => {
  assert.deepEqual(requests.weightFields({ ...subject, weights: "score", special: "renormalize" }), {
    weights: "score",
    special_tokens: "drop",
  });
  assert.deepEqual(requests.weightFields({ ...subject, weights: "rollout" }), { aggregate: "rollout" });
  assert.equal("weights" in requests.overviewFields({ ...subject, weights: "value_norm" }, false), false);
  assert.deepEqual(requests.textFields({ model, prompt: "" }), { model: "m", prompt: "" });
});

test("Maps that an answer may not have are not asked for as a whole", () => {
  assert.equal(requests.fitsWhole(512, 12, 64 << 20), true);
  assert.equal(requests.fitsWhole(1025, 12, 1 << 40), false);
  assert.equal(requests.fitsWhole(1024, 32, 64 << 20), false);
});

test("The largest come first, and of equal ones the first", () => {
  assert.deepEqual(largest([1, 3, 3, 2], 3), [1, 2, 3]);
});

test("A weight that is not 0 is not shown as 0", () => {
  assert.deepEqual([0, 1e-9, 0.00123, 0.4701, -12.34].map(weightText), ["0", "≈0", "0.00123", "0.470", "−12.3"]);
});

test("Maps that came in single precision are read by their numbers, not their bytes", () => {
  const maps = { heads: [0], size: 2, halves: asHalves(Float32Array.of(1, 2, -Infinity, 70_000)) };
  assert.deepEqual([...rowOf(maps, 0, 0, "from")], [1, 2]);
  assert.deepEqual([...rowOf(maps, 0, 1, "from")], [-Infinity, Infinity]);
  const halves = Uint16Array.of(toHalf(1));
  assert.equal(asHalves(halves), halves);
});
