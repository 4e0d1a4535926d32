import assert from "node:assert/strict";
import { test } from "node:test";
import { edgesBack, type Flow, rowsOf, sharesBefore } from "../src/drawing/flow.js";
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
  const edges = edgesBack(4, after, rows, 9);
  assert.deepEqual(edges[0], { layer: 4, query: 0, key: 0, share: 0.375 });
  assert.equal(edges.length, 5);
  assert.ok(Math.abs(edges.reduce((sum, { share }) => sum + share, 0) - 1) < 1e-9);
});

test("As many edges are kept as are asked for, whatever tokens they belong to", () => {
  const edges = edgesBack(0, after, rows, 2);
  assert.deepEqual(
    edges.map(({ query, key }) => [query, key]),
    [
      [0, 0],
      [0, 1],
    ],
  );
  assert.deepEqual(edgesBack(0, after, rows, 1), edges.slice(0, 1));
});

test("A row without weight has no edges, and numbers below 0 are none", () => {
  assert.deepEqual(edgesBack(0, new Map([[0, 1]]), new Map([[0, new Float32Array(3)]]), 9), []);
  const signed = edgesBack(0, new Map([[0, 1]]), new Map([[0, Float32Array.of(-3, 2)]]), 9);
  assert.deepEqual(
    signed.map(({ key, share }) => [key, share]),
    [[1, 1]],
  );
});

test("What arrives at a token is the sum of its edges", () => {
  const shares = sharesBefore(edgesBack(0, after, rows, 9));
  assert.equal(shares.get(1), 0.75 * 0.25 + 0.25 * 0.5);
});

test("All tokens of a short input have rows, and of a long one those that the flow touches, in order", () => {
  const flow: Flow = { columns: [new Map([[7, 1]]), new Map([[3, 0.5]]), new Map([[9, 1]])], edges: [] };
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
