/** Draws many straight lines into an image: faster than strokes from some thousands of them on. */

import type { Lines } from "./lines.js";

/** Lines go from the middle of row `query` at the left to the middle of row `key` at the right. */
export interface Sheet {
  readonly width: number;
  readonly height: number;
  /** The height of a row. */
  readonly row: number;
  /** How far the first row lies above the image. */
  readonly offset: number;
}

export interface Layer {
  readonly lines: Lines;
  readonly colour: readonly [red: number, green: number, blue: number];
}

/** How opaque a line of a weight is. */
export function opacity(weight: number): number {
  return Math.min(1, Math.sqrt(Math.max(weight, 0)));
}

/** The mean density of places with lines: denser images are thinned to it, so that differences are seen. */
const MEAN_DENSITY = 0.8;

/** The image of all lines, (height, width, 4). Colours of several layers mix where they cross. */
export function rasterise(layers: readonly Layer[], sheet: Sheet): Uint8ClampedArray<ArrayBuffer> {
  const count = sheet.width * sheet.height;
  const colours = new Float32Array(3 * count);
  const shares = new Float32Array(count);
  const total = new Float32Array(count);
  const density = new Float32Array(count);
  for (const { lines, colour } of layers) {
    density.fill(0);
    addLines(density, lines, sheet);
    for (let i = 0; i < count; i++) {
      const own = density[i]!;
      if (own === 0) continue;
      // Squares let the head with most lines at a place have its hue: a mean of many would be grey.
      const share = own * own;
      for (let c = 0; c < 3; c++) colours[3 * i + c] = colours[3 * i + c]! + share * colour[c]!;
      shares[i] = shares[i]! + share;
      total[i] = total[i]! + own;
    }
  }
  const gain = gainOf(total);
  const pixels = new Uint8ClampedArray(4 * count);
  for (let i = 0; i < count; i++) {
    if (shares[i] === 0) continue;
    for (let c = 0; c < 3; c++) pixels[4 * i + c] = colours[3 * i + c]! / shares[i]!;
    pixels[4 * i + 3] = 255 * (1 - Math.exp(-total[i]! * gain));
  }
  return pixels;
}

function gainOf(total: Float32Array): number {
  let [sum, places] = [0, 0];
  for (const density of total) {
    sum += density;
    if (density > 0) places++;
  }
  return Math.min(1, (MEAN_DENSITY * places) / Math.max(sum, 1e-9));
}

/** Whether a line between two heights is seen at all. */
export function crosses(y0: number, y1: number, height: number): boolean {
  return Math.max(y0, y1) > 0 && Math.min(y0, y1) < height;
}

function addLines(density: Float32Array, { starts, keys, weights }: Lines, sheet: Sheet): void {
  const { row, offset, height } = sheet;
  for (let query = 0; query + 1 < starts.length; query++) {
    const y0 = (query + 0.5) * row - offset;
    for (let i = starts[query]!; i < starts[query + 1]!; i++) {
      const y1 = (keys[i]! + 0.5) * row - offset;
      if (crosses(y0, y1, height)) addLine(density, y0, y1, opacity(weights[i]!), sheet);
    }
  }
}

/** Add a line to the two pixels that are nearest to it in each column, by how near they are. */
function addLine(density: Float32Array, y0: number, y1: number, amount: number, { width, height }: Sheet): void {
  const slope = (y1 - y0) / width;
  // The columns in which the line lies between the first and the last row of pixels.
  const [low, high] = [0.5, height - 0.5];
  const at = (y: number) => (y - y0) / slope;
  const [from, to] = slope === 0 ? [0, width] : slope > 0 ? [at(low), at(high)] : [at(high), at(low)];
  if (slope === 0 && (y0 < low || y0 >= high)) return;
  const [first, end] = [Math.max(0, Math.ceil(from - 0.5)), Math.min(width, Math.floor(to - 0.5) + 1)];
  let y = y0 + slope * (first + 0.5) - 0.5;
  for (let x = first; x < end; x++, y += slope) {
    const above = y < 0 ? 0 : y | 0;
    const share = (y - above) * amount;
    const i = above * width + x;
    density[i] = density[i]! + amount - share;
    if (above + 1 < height) density[i + width] = density[i + width]! + share;
  }
}
