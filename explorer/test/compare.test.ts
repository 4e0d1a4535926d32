import assert from "node:assert/strict";
import { test } from "node:test";
import type { Overview } from "../src/data/overview.js";
import { cut, distance, minus } from "../src/drawing/difference.js";
import { divergingAt, largestSize } from "../src/drawing/diverging.js";
import { align, aligned, sameTokens } from "../src/views/compare/align.js";

function units(text: string, segment = 0): { token: string; segment: number }[] {
  return text.split(" ").map((token) => ({ token, segment }));
}

test("A token of one text finds the same token of the other, in order", () => {
  const { toSecond, toFirst } = align(
    units("[CLS] the old cat sat [SEP]"),
    units("[CLS] a cat calmly sat [SEP]"),
    false,
  );
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

test("Tokens of a minimal pair stand for each other by their place, or where as many differ between two that do not", () => {
  const [one, two] = [units("the lawyer said she left"), units("the nurse said he left")];
  const byPlace = align(one, two);
  assert.equal(byPlace.byPlace, true);
  assert.deepEqual([...byPlace.toSecond], [[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]]); // biome-ignore format: short
  const moved = align(units("a b c"), units("b c a"), false);
  assert.equal(moved.byPlace, false);
  assert.deepEqual([...moved.toSecond], [[1, 0], [2, 1]]); // biome-ignore format: short
  const longer = align(units("the lawyer said she left"), units("the nurse said that he left"));
  assert.deepEqual([longer.byPlace, longer.toSecond.get(1), longer.toSecond.get(3)], [false, 1, undefined]);
});

test("Pieces of the same text stand for each other however two vocabularies write them", () => {
  const one = [
    { token: "[CLS]", label: "[CLS]", segment: 0, special: true },
    { token: "##ing", label: "ing", segment: 0 },
  ];
  const two = [
    { token: "<s>", label: "<s>", segment: 0, special: true },
    { token: "ing", label: "ing", segment: 0 },
  ];
  assert.equal(align(one, two, false).toSecond.size, 2);
});

test("What stands for nothing is left out by name, and what differs has both labels", () => {
  const overview = (text: string) => {
    const kept = units(text).map((unit, position) => ({ ...unit, label: unit.token, position }));
    return { kept, units: kept, indexOf: new Map(kept.map((_, i) => [i, i])) } as unknown as Overview;
  };
  const [one, two] = [overview("the lawyer said she left"), overview("the nurse said that he left")];
  const found = aligned(one, two, align(one.units, two.units));
  assert.deepEqual(found.labels, ["the", "lawyer/nurse", "said", "left"]);
  assert.deepEqual([found.first, found.second], [[0, 1, 2, 4], [0, 1, 2, 5]]); // biome-ignore format: short
  assert.deepEqual(
    found.left.map((all) => all.map(({ label }) => label)),
    [["she"], ["that", "he"]],
  );
});

test("The distance of maps is the share of a row's weight that goes elsewhere, the rest of the row included", () => {
  const one = cut(Float32Array.of(0.5, 0.5, 0, 0, 1, 0, 0, 0, 1), 3, [0, 1]);
  const two = cut(Float32Array.of(0.5, 0, 0.5, 0, 1, 0, 0, 0, 1), 3, [0, 1]);
  assert.deepEqual([...one], [0.5, 0.5, 0, 0, 1, 0]);
  assert.deepEqual([...minus(two, one, 2)], [0, -0.5, 0, 0]);
  assert.equal(distance(one, two, 2, true), 0.25);
  assert.equal(distance(one, one, 2, true), 0);
  assert.equal(distance(one, two, 2, false), 0.125);
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
