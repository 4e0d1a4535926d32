import assert from "node:assert/strict";
import { test } from "node:test";
import { type Flow, rowsOf, stepBack } from "../src/drawing/flow.js";
import { changedFields, parseState } from "../src/state/fields.js";

const rows = new Map([
  [0, Float32Array.of(0.5, 0.25, 0.25)],
  [2, Float32Array.of(0, 1, 1)],
]);
const after = new Map([
  [0, 0.75],
  [2, 0.25],
]);

test("Edges carry the share of their token by their weight in its row, the strongest first", () => {
  const { edges, kept } = stepBack(4, after, rows, 9);
  assert.deepEqual(edges[0], { layer: 4, query: 0, key: 0, share: 0.375 });
  assert.deepEqual([edges.length, kept], [5, 1]);
});

test("As many edges are kept as are asked for, and their shares are of what these carry", () => {
  const { edges, kept, before } = stepBack(0, after, rows, 2);
  assert.deepEqual(edges, [
    { layer: 0, query: 0, key: 0, share: 0.375 / kept },
    { layer: 0, query: 0, key: 1, share: 0.1875 / kept },
  ]);
  assert.equal(kept, 0.5625);
  assert.deepEqual(
    [...before],
    [
      [0, 0.375 / kept],
      [1, 0.1875 / kept],
    ],
  );
  assert.deepEqual(stepBack(0, after, rows, 1).edges, [{ layer: 0, query: 0, key: 0, share: 1 }]);
});

test("A row without weight has no edges, and numbers below 0 are none", () => {
  const none = stepBack(0, new Map([[0, 1]]), new Map([[0, new Float32Array(3)]]), 9);
  assert.deepEqual([none.edges, none.kept, none.before.size], [[], 0, 0]);
  const signed = stepBack(0, new Map([[0, 1]]), new Map([[0, Float32Array.of(-3, 2)]]), 9);
  assert.deepEqual([...signed.before], [[1, 1]]);
});

test("What arrives at a token is the sum of its edges", () => {
  assert.equal(stepBack(0, after, rows, 9).before.get(1), 0.75 * 0.25 + 0.25 * 0.5);
});

test("All tokens of a short input have rows, and of a long one those that the flow touches, in order", () => {
  const flow: Flow = { columns: [new Map([[7, 1]]), new Map([[3, 0.5]]), new Map([[9, 1]])], edges: [], carried: 1 };
  assert.deepEqual(rowsOf(flow, 3, 40), [0, 1, 2]);
  assert.deepEqual(rowsOf(flow, 100, 40), [3, 7, 9]);
});

test("A link may ask for a whole number of edges and any share of mass, 0 too", () => {
  assert.deepEqual(changedFields(parseState({ edges: 3, mass: 0, flowHeads: "chosen" })), {
    edges: 3,
    mass: 0,
    flowHeads: "chosen",
  });
  assert.deepEqual(changedFields(parseState({ edges: 2.5, mass: 1.01, flowHeads: "none" })), {});
  assert.deepEqual(changedFields(parseState({ edges: 0 })), {});
});
