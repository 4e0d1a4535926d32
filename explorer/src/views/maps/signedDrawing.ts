/** Draws a map of signed numbers with the labels of its rows and columns. */

import type { Scale } from "../../drawing/colours.js";
import { largestSize, paintDiverging } from "../../drawing/diverging.js";
import { prepare, type Size } from "../canvas.js";

export type Cell = readonly [row: number, column: number];

export interface SignedMap {
  readonly rows: readonly string[];
  readonly columns: readonly string[];
  /** (rows, columns) */
  readonly values: Float32Array;
}

/** The room of labels, left and above, in CSS pixels. */
const LABELS = 72;
/** Labels stand at least this far apart: of small cells only some have one, and the one that is pointed at. */
const LINE = 11;

/** Where the map stands in its frame: cells are square. */
function placeOf({ width, height }: Size, { rows, columns }: SignedMap): { start: number; cell: number } {
  const cell = Math.min((height - LABELS) / rows.length, (width - LABELS) / columns.length);
  return { start: LABELS, cell: Math.max(cell, 0) };
}

/** The cell at a place in the frame; null beside the map. */
export function cellAt(size: Size, map: SignedMap, [x, y]: readonly [number, number]): Cell | null {
  const { start, cell } = placeOf(size, map);
  const [row, column] = [Math.floor((y - start) / cell), Math.floor((x - start) / cell)];
  return row >= 0 && row < map.rows.length && column >= 0 && column < map.columns.length ? [row, column] : null;
}

export function drawSigned(
  canvas: HTMLCanvasElement,
  map: SignedMap,
  size: Size,
  at: Cell,
  dark: boolean,
  scale: Scale,
): void {
  const { start, cell } = placeOf(size, map);
  const [across, down] = [map.columns.length, map.rows.length];
  const context = prepare(canvas, size);
  const image = new ImageData(across, down);
  paintDiverging(map.values, image.data, largestSize(map.values), dark, scale);
  const pixels = new OffscreenCanvas(across, down);
  pixels.getContext("2d")!.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(pixels, start, start, cell * across, cell * down);
  const style = getComputedStyle(canvas);
  context.strokeStyle = style.getPropertyValue("--line");
  context.strokeRect(start + 0.5, start + 0.5, cell * across - 1, cell * down - 1);
  context.strokeStyle = style.getPropertyValue("--ink");
  const [row, column] = at;
  context.lineWidth = 2;
  context.strokeRect(start + column * cell, start + row * cell, cell, cell);
  drawLabels(context, map, { start, cell }, at, [style.color, style.fontFamily]);
}

function drawLabels(
  context: CanvasRenderingContext2D,
  { rows, columns }: SignedMap,
  { start, cell }: { start: number; cell: number },
  [row, column]: Cell,
  [ink, family]: readonly [string, string],
): void {
  context.fillStyle = ink;
  context.textBaseline = "middle";
  const font = `${Math.min(12, Math.max(cell, 9))}px ${family}`;
  const every = Math.ceil(LINE / Math.max(cell, 0.1) - 0.2);
  const isNamed = (i: number, own: number) =>
    i === own || (i % every === 0 && Math.abs(i - own) * cell >= LINE) || every === 1;
  rows.forEach((label, i) => {
    if (!isNamed(i, row)) return;
    context.font = i === row ? `bold ${font}` : font;
    context.textAlign = "right";
    context.fillText(label, start - 6, start + (i + 0.5) * cell, start - 6);
  });
  columns.forEach((label, i) => {
    if (!isNamed(i, column)) return;
    context.font = i === column ? `bold ${font}` : font;
    context.save();
    context.translate(start + (i + 0.5) * cell, start - 6);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(label, 0, 0, start - 6);
    context.restore();
  });
}
