import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { changedFields, initialState, parseState, type State } from "../src/state/fields.js";
import { fromFragment, toFragment } from "../src/state/fragment.js";

const state: State = {
  ...initialState(),
  text: "Ein Gerät, 👩🏽‍🚀 and\na line",
  pair: "",
  prompt: "",
  heads: [
    [3, 1],
    [0, 11],
  ],
  pinned: [0, 9],
  weights: "rollout",
  theme: "dark",
};

test("A fragment gives the state back, values of nothing and empty texts too", async () => {
  assert.deepEqual(await fromFragment(`#${await toFragment(state)}`), state);
});

test("The initial state needs no fragment", async () => {
  assert.equal(await toFragment(initialState()), "");
  assert.deepEqual(await fromFragment(""), initialState());
});

test("A fragment has only characters that URLs keep as they are", async () => {
  assert.match(await toFragment(state), /^[\w.-]+$/);
});

test("Any fragment is read without an error, and what is damaged is initial", async () => {
  const whole = await toFragment(state);
  const damaged = [
    "#",
    "#nothing",
    "#1.",
    "#1.!!",
    "#1.AAAA",
    "#2.abc",
    "#%E0%A4%A",
    `#${whole.slice(0, -5)}`,
    `#${whole}x`,
  ];
  for (const fragment of damaged) assert.ok((await fromFragment(fragment)).view === "text", fragment);
});

test("A small fragment that inflates to more than a page needs is not read", async () => {
  const padded = (spaces: number) => deflateRawSync(`{"view":"table"${" ".repeat(spaces)}}`).toString("base64url");
  assert.equal((await fromFragment(`1.${padded(1000)}`)).view, "table");
  assert.ok(padded(8 << 20).length < 20_000);
  assert.equal((await fromFragment(`1.${padded(8 << 20)}`)).view, "text");
});

test("Values of another kind or out of range are initial, and others beside them are read", () => {
  const wrong = { text: 7, heads: [[1]], pinned: [-1], weights: "probabilities", level: "word", constructor: "x" };
  assert.deepEqual(changedFields(parseState(wrong)), { level: "word" });
  assert.deepEqual(changedFields(parseState({ pinned: [1.5], heads: [[0, 1e9]], text: "\ud800" })), {});
  assert.deepEqual(changedFields(parseState([])), {});
});

test("Layer 0, head 0 and position 0 are values, not missing ones", () => {
  assert.deepEqual(changedFields(parseState({ heads: [[0, 0]], pinned: [0] })), { heads: [[0, 0]], pinned: [0] });
});
