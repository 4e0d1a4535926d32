import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor } from "../../client/js/src/index.js";
import type { Overview } from "../src/data/overview.js";
import { inBox, nearest, neighbour, plotOf, pointsOf, ticks, toPixels } from "../src/drawing/scatter.js";
import { allHeads, sortedHeads, statisticOf } from "../src/drawing/statistics.js";

const summary = Object.fromEntries(
  Object.entries({
    entropy: [Math.log(5), 0, 1, Number.NaN],
    mean_distance: [4, 0, 2, Number.NaN],
    confidence: [0.2, 1, 0.5, 0.5],
    previous: [0.1, 0.9, 0, 0],
    next: [0.1, 0, 0.6, 0],
    self: [0.1, 0, 0, 0.4],
    special: [0.4, 0.1, 0, 0],
  }).map(([name, values]) => [name, new Tensor(Float32Array.from(values), [2, 2])]),
);
const overview = { summary, layers: 2, heads: 2, kept: { length: 5 } } as unknown as Overview;
const points = pointsOf(overview);
const plot = plotOf(points, 400, 300);

test("A head lies at its shares of the longest distance and of the largest entropy", () => {
  assert.deepEqual(
    points.map(({ x }) => x),
    [1, 0, 0.5, 0],
  );
  assert.ok(Math.abs(points[0].y - 1) < 1e-6 && points[1].y === 0);
  assert.deepEqual(
    points.map(({ kind }) => kind),
    ["special", "previous", "next", "self"],
  );
});

test("A pointer finds the head that is drawn under it, and none in the empty part", () => {
  const at = toPixels(plot, points[2].x, points[2].y);
  assert.equal(nearest(plot, points, at), points[2]);
  assert.equal(nearest(plot, points, [at[0] + 30, at[1]]), null);
});

test("A brush chooses the same heads from whichever corner it is dragged", () => {
  const [x, y] = toPixels(plot, points[0].x, points[0].y);
  const box = { x0: x - 5, y0: y - 5, x1: x + 5, y1: y + 5 };
  assert.deepEqual(inBox(plot, points, box), [points[0]]);
  assert.deepEqual(inBox(plot, points, { x0: box.x1, y0: box.y1, x1: box.x0, y1: box.y0 }), [points[0]]);
});

test("Arrow keys step along an axis and stop at its end", () => {
  assert.deepEqual(neighbour(points, [1, 0], "x", 1)?.id, [0, 0]);
  assert.equal(neighbour(points, [0, 0], "x", 1), null);
});

test("Every head lies within the plot, also where all have the same values", () => {
  for (const all of [points, [points[0], points[0]]]) {
    const own = plotOf(all, 400, 300);
    for (const point of all) {
      const [x, y] = toPixels(own, point.x, point.y);
      assert.ok(x > 0 && x < 400 && y > 0 && y < 300);
    }
  }
});

test("Ticks are round and within the range", () => {
  assert.deepEqual(ticks([0, 1]), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(ticks([0.31, 0.44]), [0.35, 0.4]);
});

test("Heads are sorted by a statistic, and one without a value is last either way", () => {
  const entropy = (id: readonly [number, number]) => statisticOf(overview, "entropy", id);
  assert.deepEqual(sortedHeads(allHeads(overview), entropy, true), [
    [0, 0],
    [1, 0],
    [0, 1],
    [1, 1],
  ]);
  assert.deepEqual(sortedHeads(allHeads(overview), entropy, false), [
    [0, 1],
    [1, 0],
    [0, 0],
    [1, 1],
  ]);
});
