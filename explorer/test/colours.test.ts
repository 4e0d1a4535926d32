import assert from "node:assert/strict";
import { test } from "node:test";
import {
  colourAt,
  colourMap,
  highlights,
  luminance,
  paint,
  place,
  rangeOf,
  weightAtPlace,
} from "../src/drawing/colours.js";

test("A weight at a place has that place, on every scale", () => {
  for (const scale of ["linear", "sqrt", "log"] as const) {
    for (const at of [0, 0.25, 0.5, 1]) {
      assert.ok(Math.abs(place(weightAtPlace(at, -1, 3, scale), -1, 3, scale) - at) < 1e-9, `${scale} ${at}`);
    }
  }
});

test("Colour maps begin and end with the colours that are published for them", () => {
  assert.deepEqual(colourAt(colourMap("viridis", false), 0), [0x44, 0x01, 0x54]);
  assert.deepEqual(colourAt(colourMap("viridis", false), 1), [0xfd, 0xe7, 0x25]);
  assert.equal(colourMap("auto", true).name, "magma");
  assert.equal(colourMap("auto", false).name, "viridis");
});

test("Lightness of each colour map grows with the weight", () => {
  for (const name of ["viridis", "cividis", "magma"] as const) {
    const light = Array.from({ length: 17 }, (_, i) => luminance(...colourAt(colourMap(name, false), i / 16)));
    assert.deepEqual(
      light,
      [...light].sort((a, b) => a - b),
      name,
    );
  }
});

test("Every scale begins at 0, ends at 1 and stays within", () => {
  for (const scale of ["linear", "sqrt", "log"] as const) {
    assert.deepEqual(
      [-1, 0, 1, 2].map((weight) => place(weight, 0, 1, scale)),
      [0, 0, 1, 1],
    );
    assert.equal(place(3, 3, 3, scale), 0);
  }
  assert.equal(place(0.25, 0, 1, "sqrt"), 0.5);
  assert.ok(Math.abs(place(0.01, 0, 1, "log") - 0.5) < 1e-9);
});

test("Painted pixels are opaque and have the colour of their weight", () => {
  const map = colourMap("magma", true);
  const pixels = new Uint8ClampedArray(4 * 5);
  paint(Float32Array.of(0, 0.5, 1, 2, Number.NaN), pixels, map, 0, 1, "linear");
  assert.deepEqual([...pixels.subarray(0, 4)], [...colourAt(map, 0), 255]);
  assert.deepEqual([...pixels.subarray(8, 12)], [...colourAt(map, 1), 255]);
  assert.deepEqual([...pixels.subarray(12, 16)], [...colourAt(map, 1), 255]);
  assert.deepEqual([...pixels.subarray(16, 20)], [...colourAt(map, 0), 255]);
});

test("Ink has at least the contrast that WCAG asks of text, on every highlight of both themes", () => {
  for (const dark of [false, true]) {
    for (const { background, ink } of highlights("auto", dark).slice(1)) {
      const [r, g, b] = background.match(/\d+/g)!.map(Number);
      const [ground, letters] = [luminance(r, g, b), ink === "#fff" ? 1 : 0];
      const contrast = (Math.max(ground, letters) + 0.05) / (Math.min(ground, letters) + 0.05);
      assert.ok(contrast >= 4.5, `${background} ${ink} ${contrast}`);
    }
  }
});

test("The range of probabilities begins at 0, that of scores at the least", () => {
  assert.deepEqual(rangeOf(Float32Array.of(0.25, 0.5), false), [0, 0.5]);
  assert.deepEqual(rangeOf(Float32Array.of(-2, 1), true), [-2, 1]);
  assert.deepEqual(rangeOf(new Float32Array(), true), [0, 0]);
});

test("What a token does not see has no place on a scale", () => {
  assert.deepEqual(rangeOf(Float32Array.of(-Infinity, -3, 2, -Infinity), true), [-3, 2]);
  assert.deepEqual(rangeOf(Float32Array.of(-Infinity), true), [0, 0]);
  assert.deepEqual(rangeOf(Float32Array.of(0.5, Infinity), false), [0, 0.5]);
});
