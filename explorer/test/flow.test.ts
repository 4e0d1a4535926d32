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

test("Half of a token stays with it, and half goes along its row, the strongest edges first", () => {
  const { edges, kept } = stepBack(4, after, rows, 9);
  assert.deepEqual(edges[0], { layer: 4, query: 0, key: 0, share: 0.75 * (0.5 + 0.25) });
  assert.deepEqual([edges.length, kept], [5, 1]);
});

test("Of each token as many edges are kept as are asked for, which carry all of its share", () => {
  const { edges, kept, before } = stepBack(0, after, rows, 1);
  assert.deepEqual(edges, [
    { layer: 0, query: 0, key: 0, share: 0.75 },
    { layer: 0, query: 2, key: 2, share: 0.25 },
  ]);
  assert.equal(kept, 0.75 * 0.75 + 0.25 * 0.75);
  assert.deepEqual([...before], [...after]);
});

test("What is left out gets nothing, and the rest of the row all that flows", () => {
  const { before } = stepBack(0, new Map([[2, 1]]), rows, 9, new Set([1]));
  assert.deepEqual([...before], [[2, 1]]);
  const { before: more } = stepBack(0, new Map([[0, 1]]), rows, 9, new Set([0]));
  assert.deepEqual(Object.fromEntries(more), { 0: 0.5, 1: 0.25, 2: 0.25 });
});

test("A row without weight stays where it is, and numbers below 0 are no edges", () => {
  const none = stepBack(0, new Map([[0, 1]]), new Map([[0, new Float32Array(3)]]), 9);
  assert.deepEqual([none.edges.length, none.kept, [...none.before]], [1, 1, [[0, 1]]]);
  const signed = stepBack(0, new Map([[0, 1]]), new Map([[0, Float32Array.of(-3, 2)]]), 9);
  assert.deepEqual(Object.fromEntries(signed.before), { 0: 0.5, 1: 0.5 });
});

test("What arrives at a token is the sum of its edges", () => {
  assert.equal(stepBack(0, after, rows, 9).before.get(1), (0.75 * 0.25 + 0.25 * 0.5) / 2);
});

test("With all edges of all layers a flow is rollout", () => {
  const map = [Float32Array.of(0.2, 0.5, 0.3), Float32Array.of(0.1, 0.1, 0.8), Float32Array.of(0.6, 0, 0.4)];
  const all = new Map(map.map((row, i) => [i, row]));
  const mixed = map.map((row, i) => [...row].map((weight, j) => 0.5 * weight + (i === j ? 0.5 : 0)));
  const expected = [0, 1, 2].map((j) => mixed[1]!.reduce((sum, weight, i) => sum + weight * mixed[i]![j]!, 0));
  const first = stepBack(1, new Map([[1, 1]]), all, 3);
  const { before } = stepBack(0, first.before, all, 3);
  for (const [j, share] of expected.entries()) assert.ok(Math.abs(before.get(j)! - share) < 1e-6);
});

test("All tokens of a short input have rows, and of a long one those that the flow touches, in order", () => {
  const flow: Flow = { columns: [new Map([[7, 1]]), new Map([[3, 0.5]]), new Map([[9, 1]])], edges: [], carried: 1 };
  assert.deepEqual(rowsOf(flow, 3, 40), [0, 1, 2]);
  assert.deepEqual(rowsOf(flow, 100, 40), [3, 7, 9]);
});

test("A link may ask for a whole number of edges and any share of mass, 0 too", () => {
  assert.deepEqual(changedFields(parseState({ edges: 4, mass: 0, flowHeads: "chosen" })), {
    edges: 4,
    mass: 0,
    flowHeads: "chosen",
  });
  assert.deepEqual(changedFields(parseState({ edges: 2.5, mass: 1.01, flowHeads: "none" })), {});
  assert.deepEqual(changedFields(parseState({ edges: 0 })), {});
});
