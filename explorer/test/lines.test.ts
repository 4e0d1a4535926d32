import assert from "node:assert/strict";
import { test } from "node:test";
import { hueOf, MOST_HUES } from "../src/drawing/hues.js";
import { type Lines, linesOf } from "../src/drawing/lines.js";
import { opacity, rasterise } from "../src/drawing/raster.js";

/** The lines of a row as the definition has them, by sorting. */
function sorted(row: Float32Array, mass: number): number[] {
  const order = Array.from(row, (_, i) => i)
    .filter((i) => row[i] > 0)
    .sort((a, b) => row[b] - row[a] || a - b);
  const sum = order.reduce((all, i) => all + row[i], 0);
  let reached = 0;
  const count = order.findIndex((i) => {
    reached += row[i];
    return reached >= mass * sum - 1e-9;
  });
  return (mass === 0 ? [] : order.slice(0, count + 1)).sort((a, b) => a - b);
}

function keysOf({ starts, keys }: Lines, row: number): number[] {
  return [...keys.subarray(starts[row], starts[row + 1])].sort((a, b) => a - b);
}

/** Rows from peaked to uniform, the same on every run. */
function someMap(size: number): Float32Array {
  let seed = 7;
  const random = () => {
    seed = (seed * 16807) % 2147483647;
    return seed / 2147483647;
  };
  return Float32Array.from(
    { length: size ** 2 },
    (_, i) => (0.05 + 0.95 * random()) ** (1 + Math.floor(i / size) / 8),
  );
}

test("Lines of a row are the fewest keys that have the mass, as sorting finds them", () => {
  const size = 40;
  const map = someMap(size);
  for (const mass of [0, 0.05, 0.7, 0.9, 1]) {
    const lines = linesOf(map, size, mass);
    for (let row = 0; row < size; row++) {
      assert.deepEqual(
        keysOf(lines, row),
        sorted(map.subarray(row * size, (row + 1) * size), mass),
        `${mass} ${row}`,
      );
    }
  }
});

test("Of equal weights as many as needed have lines, and numbers below 0 have none", () => {
  const lines = linesOf(Float32Array.of(0.25, 0.25, 0.25, 0.25, -5, 0, 1, 1), 4, 0.5);
  assert.equal(lines.starts[1], 2);
  assert.deepEqual(keysOf(lines, 1), [2]);
  assert.deepEqual([...lines.weights], [0.25, 0.25, 1]);
});

test("Choosing lines leaves a map as it was, also one that shares memory with others", () => {
  const all = Float32Array.of(9, 0.1, 0.9, 0.9, 0.1);
  const lines = linesOf(all.subarray(1), 2, 0.7);
  assert.deepEqual([...lines.keys], [1, 0]);
  assert.equal(all[0], 9);
});

const line = (query: number, key: number, weight: number, size: number): Lines => ({
  starts: Uint32Array.from({ length: size + 1 }, (_, i) => (i > query ? 1 : 0)),
  keys: Uint32Array.of(key),
  weights: Float32Array.of(weight),
});
const sheet = { width: 9, height: 40, row: 10, offset: 0 };
const inked = (pixels: Uint8ClampedArray, x: number) =>
  Array.from({ length: sheet.height }, (_, y) => y).filter((y) => pixels[4 * (y * sheet.width + x) + 3] > 0);

test("A line goes from the middle of its query at the left to that of its key at the right", () => {
  const pixels = rasterise([{ lines: line(0, 3, 1, 4), colour: [10, 20, 30] }], sheet);
  assert.deepEqual(
    [0, 4, 8].map((x) => inked(pixels, x)[0]),
    [6, 19, 32],
  );
  const [red, green, blue] = pixels.subarray(4 * (19 * sheet.width + 4));
  assert.deepEqual([red, green, blue], [10, 20, 30]);
});

test("A part of a line that lies outside of the image is not drawn elsewhere in it", () => {
  for (const offset of [-15, 12, 30]) {
    const pixels = rasterise([{ lines: line(0, 3, 1, 4), colour: [0, 0, 0] }], { ...sheet, offset });
    for (let x = 0; x < sheet.width; x++) {
      const exact = 5 + (30 * (x + 0.5)) / sheet.width - offset;
      for (const y of inked(pixels, x)) assert.ok(Math.abs(y + 0.5 - exact) <= 1, `${offset} ${x} ${y}`);
    }
    assert.ok(inked(pixels, offset < 0 ? 0 : 8).length > 0);
  }
});

test("Opacity grows with the root of the weight", () => {
  assert.deepEqual([-1, 0, 0.25, 1, 4].map(opacity), [0, 0, 0.5, 1, 1]);
});

test("However many lines there are, denser places differ from others, and a head has its hue where it has most", () => {
  const of = (query: number, times: number, colour: readonly [number, number, number]) =>
    Array.from({ length: times }, () => ({ lines: line(query, query, 1, 4), colour }));
  const pixels = rasterise([...of(0, 40, [0, 0, 200]), ...of(2, 80, [0, 0, 200])], sheet);
  const alpha = (y: number) => pixels[4 * y * sheet.width + 3];
  assert.ok(0 < alpha(4) && alpha(4) < alpha(24) && alpha(24) < 255);
  const thick = { lines: line(0, 0, 1, 4), colour: [200, 0, 0] as const };
  const thin = { lines: line(0, 0, 0.01, 4), colour: [0, 0, 200] as const };
  const mixed = rasterise([thin, thick], sheet);
  const [red, , blue] = mixed.subarray(4 * 4 * sheet.width);
  assert.ok(red > 190 && blue < 10);
});

test("Heads that are shown at once have hues of their own", () => {
  for (const dark of [false, true]) {
    const hues = Array.from({ length: MOST_HUES }, (_, i) => hueOf(i, dark).join());
    assert.equal(new Set(hues).size, MOST_HUES);
  }
});
