import assert from "node:assert/strict";
import { test } from "node:test";
import type { Span } from "../../client/js/src/index.js";
import { unitsOf } from "../src/data/overview.js";

const columns = {
  tokens: ["[CLS]", "hall", "##uc", "😀", "##😀", "[SEP]", "no", "[SEP]"],
  offsets: [
    [0, 0],
    [1, 5],
    [5, 7],
    [8, 9],
    [8, 9],
    [0, 0],
    [0, 2],
    [0, 0],
  ] as Span[],
  word_ids: [null, 0, 0, 1, 1, null, 0, null],
  segment_ids: [0, 0, 0, 0, 0, 0, 1, 1],
  special: [true, false, false, false, false, true, false, true],
  words: null,
  word_offsets: null,
};
const texts = { text: " Halluc\n😀", pair: "No" };

test("Tokens are shown as the text has them, and their offsets count code points", () => {
  const labels = unitsOf(columns, texts).map(({ label }) => label);
  assert.deepEqual(labels, ["[CLS]", "Hall", "uc", "😀", "😀", "[SEP]", "No", "[SEP]"]);
});

test("Pieces of a word touch each other, and line breaks of the text stay", () => {
  const units = unitsOf(columns, texts);
  assert.deepEqual(
    units.map(({ spaced }) => spaced),
    [true, true, false, true, false, true, false, true],
  );
  assert.deepEqual(units.map(({ broken }) => broken).indexOf(true), 3);
});

test("A word has the segment and the mark of its first token", () => {
  const words = ["[CLS]", "Halluc", "😀", "[SEP]", "No", "[SEP]"];
  const word_offsets: Span[] = [
    [0, 0],
    [1, 7],
    [8, 9],
    [0, 0],
    [0, 2],
    [0, 0],
  ];
  const units = unitsOf({ ...columns, words, word_offsets }, texts);
  assert.deepEqual(
    units.map(({ label }) => label),
    words,
  );
  assert.deepEqual(
    units.map(({ special }) => special),
    [true, false, false, true, false, true],
  );
  assert.deepEqual(
    units.map(({ segment }) => segment),
    [0, 0, 0, 0, 1, 1],
  );
});
