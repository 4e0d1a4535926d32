import assert from "node:assert/strict";
import { test } from "node:test";
import * as cameras from "../src/drawing/camera.js";
import { borders, largestCells, marginsOf } from "../src/drawing/margins.js";
import { weightText } from "../src/drawing/numbers.js";

const frame = { width: 400, height: 300 };
const SIZE = 100;

test("The whole map is seen at first, and cells of a short one are not larger than labels need", () => {
  assert.deepEqual(cameras.fitted(frame, SIZE), { cell: 3, x: 0, y: 0 });
  assert.equal(cameras.fitted(frame, 2).cell, 40);
});

test("Zooming keeps the cell under the pointer, and out of it nothing lies outside of the map", () => {
  const near = cameras.zoomed(cameras.fitted(frame, SIZE), 5, [150, 120], frame, SIZE);
  assert.deepEqual(cameras.cellAt(near, 150, 120, frame, SIZE), { row: 40, column: 50 });
  assert.deepEqual(cameras.zoomed(near, 1e-9, [150, 120], frame, SIZE), cameras.fitted(frame, SIZE));
});

test("A drag moves the map with the pointer and stops at its edges", () => {
  const camera = { cell: 10, x: 20, y: 20 };
  assert.deepEqual(cameras.moved(camera, -50, 30, frame, SIZE), { cell: 10, x: 25, y: 17 });
  assert.deepEqual(cameras.moved(camera, -1e6, -1e6, frame, SIZE), { cell: 10, x: 60, y: 70 });
});

test("A cell that is stepped to is seen, and one that is seen moves nothing", () => {
  const camera = { cell: 10, x: 20, y: 20 };
  assert.deepEqual(cameras.revealing(camera, { row: 30, column: 30 }, frame, SIZE), camera);
  assert.deepEqual(cameras.revealing(camera, { row: 99, column: 0 }, frame, SIZE), { cell: 10, x: 0, y: 70 });
});

test("A place outside of the frame or of the map is no cell", () => {
  const camera = cameras.fitted(frame, SIZE);
  assert.deepEqual(cameras.cellAt(camera, 299, 299, frame, SIZE), { row: 99, column: 99 });
  assert.equal(cameras.cellAt(camera, 301, 10, frame, SIZE), null);
  assert.equal(cameras.cellAt(camera, -1, 10, frame, SIZE), null);
});

test("A window has all that is seen, in whole tiles, and ends where the map does", () => {
  assert.deepEqual(cameras.seen(10.5, 100, 10, SIZE), [10, 21]);
  assert.deepEqual(cameras.tiled([10, 21], 16, SIZE), [0, 32]);
  assert.deepEqual(cameras.tiled([90, 100], 16, SIZE), [80, 100]);
});

test("Margins have the entropy of rows, divided by their sums, and the sums of columns", () => {
  const { received, entropy } = marginsOf(Float32Array.of(0.25, 0.25, 0, 0.5), 2);
  assert.deepEqual([...received], [0.25, 0.75]);
  assert.ok(Math.abs(entropy[0] - Math.log(2)) < 1e-6);
  assert.equal(entropy[1], 0);
  assert.deepEqual([...marginsOf(new Float32Array(4), 2).entropy], [0, 0]);
});

test("Another text begins where the segment changes", () => {
  assert.deepEqual(borders([0, 0, 1, 1].map((segment) => ({ segment }))), [2]);
  assert.deepEqual(borders([]), []);
});

test("The largest cells of a map come first, ties in reading order", () => {
  assert.deepEqual(largestCells(Float32Array.of(1, 3, 3, 2), 2, 3), [
    { row: 0, column: 1 },
    { row: 1, column: 0 },
    { row: 1, column: 1 },
  ]);
});

test("A weight is written in the same way everywhere, and never in powers of ten", () => {
  assert.deepEqual([0.47021484375, 6e-8, 0, 0.00123, -12.34567, Number.NaN].map(weightText), [
    "0.470",
    "≈0",
    "0",
    "0.00123",
    "−12.3",
    "–",
  ]);
});
