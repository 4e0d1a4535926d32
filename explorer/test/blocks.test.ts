import assert from "node:assert/strict";
import { test } from "node:test";
import { blocksOf } from "../src/data/blocks.js";
import type { Unit } from "../src/data/overview.js";
import { toHalf } from "../src/data/packed.js";

function unit(segment: number, special = false): Unit {
  return { position: 0, label: "", token: "", spaced: true, broken: false, segment, special };
}

test("A block is the mean over the rows of a text of their sum on a text, without special tokens", () => {
  const kept = [unit(0, true), unit(0), unit(0), unit(1)];
  const first = [1, 0, 0, 0, 0.5, 0.25, 0, 0.25, 0, 0.5, 0.5, 0, 0.25, 0.25, 0, 0.5];
  const second = first.map((weight) => 2 * weight);
  const maps = { heads: [0, 3], size: 4, halves: Uint16Array.from([...first, ...second], toHalf) };
  const blocks = [0.625, 0.125, 0.25, 0.5];
  assert.deepEqual([...blocksOf(maps, kept)], [...blocks, ...blocks.map((mass) => 2 * mass)]);
});

test("A text without tokens has no mean", () => {
  const maps = { heads: [-1], size: 1, halves: Uint16Array.of(toHalf(1)) };
  assert.deepEqual([...blocksOf(maps, [unit(0)])], [1, 0, Number.NaN, Number.NaN]);
});
