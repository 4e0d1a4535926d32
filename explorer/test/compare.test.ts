import assert from "node:assert/strict";
import { test } from "node:test";
import { divergingAt, largestSize } from "../src/drawing/diverging.js";
import { align, sameTokens } from "../src/views/compare/align.js";

function units(text: string, segment = 0): { token: string; segment: number }[] {
  return text.split(" ").map((token) => ({ token, segment }));
}

test("A token of one text finds the same token of the other, in order", () => {
  const { toSecond, toFirst } = align(units("[CLS] the old cat sat [SEP]"), units("[CLS] a cat calmly sat [SEP]"));
  assert.deepEqual(
    [...toSecond].sort(([a], [b]) => a - b),
    [
      [0, 0],
      [3, 2],
      [4, 4],
      [5, 5],
    ],
  );
  assert.equal(toFirst.get(2), 3);
  assert.equal(toSecond.get(1), undefined);
});

test("Tokens of different texts of a pair are not the same", () => {
  assert.equal(align(units("cat"), units("cat", 1)).toSecond.size, 0);
});

test("Texts with the same tokens have the same maps in shape", () => {
  assert.equal(sameTokens(units("a b"), units("a b")), true);
  assert.equal(sameTokens(units("a b"), units("a c")), false);
  assert.equal(sameTokens(units("a b"), units("a b c")), false);
});

test("A difference of 0 has the colour of the page, and signs have colours of their own", () => {
  assert.deepEqual(divergingAt(0, 1, false, "sqrt"), [255, 255, 255]);
  assert.deepEqual(divergingAt(0, 0, true, "log"), [24, 24, 24]);
  // Neither map has a score where a token is not seen: there is no difference.
  assert.deepEqual(divergingAt(Number.NaN, 1, false, "sqrt"), [255, 255, 255]);
  assert.equal(largestSize(Float32Array.of(Number.NaN, -2, Infinity)), 2);
  const [more, less] = [divergingAt(1, 1, false, "sqrt"), divergingAt(-1, 1, false, "sqrt")];
  assert.ok(more[0] > more[2] && less[2] > less[0]);
});
