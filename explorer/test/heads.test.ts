import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor } from "../../client/js/src/index.js";
import type { Overview } from "../src/data/overview.js";
import { inBox, nearest, neighbour, plotOf, pointsOf, ticks, toPixels } from "../src/drawing/scatter.js";
import { allHeads, sortedHeads, statisticOf, uniformOf } from "../src/drawing/statistics.js";
import { tellingEdge, tellingHead } from "../src/drawing/telling.js";

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
const kept = ["[CLS]", "a", "b", "c", "[SEP]"].map((token) => ({ token, special: token.startsWith("[") }));
const overview = { summary, layers: 2, heads: 2, kept, thumbnails: null } as unknown as Overview;
const points = pointsOf(overview, () => [0.1, 0.3]);
const plot = plotOf(points, 400, 300);

test("A head lies at its shares of the longest distance and of the largest entropy", () => {
  assert.deepEqual(
    points.map(({ x }) => x),
    [1, 0, 0.5, 0],
  );
  assert.ok(Math.abs(points[0].y - 1) < 1e-6 && points[1].y === 0);
});

test("What a head does mostly has clearly more weight than uniform attention", () => {
  const kinds = (...special: [number, number]) => pointsOf(overview, () => special).map(({ doing }) => doing.kind);
  // Of five tokens uniform attention has 0.2 on each.
  assert.deepEqual(kinds(0.1, 0.3), ["broad", "previous", "next", "other"]);
  assert.deepEqual(kinds(0.1, 0.95), ["last", "last", "last", "last"]);
  assert.deepEqual(kinds(0.55, 0.3), ["first", "previous", "next", "first"]);
  // More than uniform attention has, and still not most of the weight.
  assert.deepEqual(kinds(0.45, 0.3), ["broad", "previous", "next", "other"]);
  assert.equal(pointsOf(overview, null)[0].doing.kind, "broad");
  const { mass, uniform } = pointsOf(overview, () => [0.55, 0.3])[0].doing;
  assert.deepEqual([mass, Math.round(1e6 * uniform)], [0.55, 200_000]);
});

test("Statistics of uniform attention are those of a map that looks at all alike", () => {
  const found = uniformOf(overview);
  assert.ok(Math.abs(found.entropy! - Math.log(5)) < 1e-12);
  assert.ok(Math.abs(found.mean_distance! - (5 * 5 - 1) / (3 * 5)) < 1e-12);
  assert.ok(Math.abs(found.previous! - 4 / 25) < 1e-12 && Math.abs(found.next! - 4 / 25) < 1e-12);
  assert.ok(Math.abs(found.special! - 2 / 5) < 1e-12 && Math.abs(found.self! - 1 / 5) < 1e-12);
});

test("In a model of which tokens see only what is before them, uniform is over those", () => {
  const map = Float32Array.of(1, 0, 0.5, 0.5);
  const thumbnails = { row: () => map } as unknown as Overview["thumbnails"];
  const found = uniformOf({ kept: overview.kept.slice(0, 2), thumbnails });
  assert.deepEqual([found.next, found.previous, found.self, found.mean_distance], [0, 0.25, 0.75, 0.25]);
  assert.deepEqual([found.entropy, found.special], [Math.log(2) / 2, 0.75]);
});

test("The head that is shown first looks surely at words farther away, and its token at another word", () => {
  assert.deepEqual(tellingHead(overview), [1, 1]);
  const map = Float32Array.from({ length: 25 }, (_, i) => [0, 0.1, 0.9, 0.3, 0.8][i % 5]! / (1 + Math.floor(i / 5)));
  // Of [CLS], and of b → b and a → b, which are the same or beside each other, nothing counts.
  assert.deepEqual(tellingEdge(map, kept), { query: 1, key: 3, weight: Math.fround(0.3 / 2) });
  assert.equal(tellingEdge(new Float32Array(4), kept.slice(0, 2)), null);
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
