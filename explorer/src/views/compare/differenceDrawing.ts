/** Draws a difference map with the tokens of its rows and columns. */

import type { Unit } from "../../data/overview.js";
import { largestSize, paintDiverging } from "../../drawing/diverging.js";
import { prepare, type Size } from "../canvas.js";
import type { Difference } from "./difference.js";

export type Cell = readonly [row: number, column: number];

/** The room of labels, left and above, in CSS pixels. */
const LABELS = 72;
/** Cells smaller than this have no room for a label. */
const READABLE = 9;

/** Where the map stands in its frame: it is square, and has labels if they can be read. */
function placeOf({ width, height }: Size, count: number): { start: number; cell: number } {
  const side = Math.min(width, height);
  const start = (side - LABELS) / count >= READABLE ? LABELS : 0;
  return { start, cell: (side - start) / count };
}

/** The cell at a place in the frame; null beside the map. */
export function cellAt(size: Size, count: number, [x, y]: readonly [number, number]): Cell | null {
  const { start, cell } = placeOf(size, count);
  const [row, column] = [Math.floor((y - start) / cell), Math.floor((x - start) / cell)];
  return row >= 0 && row < count && column >= 0 && column < count ? [row, column] : null;
}

export function drawDifference(
  canvas: HTMLCanvasElement,
  { size: count, values }: Difference,
  units: readonly Unit[],
  size: Size,
  at: Cell,
  dark: boolean,
): void {
  const { start, cell } = placeOf(size, count);
  const context = prepare(canvas, size);
  const image = new ImageData(count, count);
  paintDiverging(values, image.data, largestSize(values), dark);
  const pixels = new OffscreenCanvas(count, count);
  pixels.getContext("2d")!.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(pixels, start, start, cell * count, cell * count);
  const style = getComputedStyle(canvas);
  context.strokeStyle = style.getPropertyValue("--line");
  context.strokeRect(start + 0.5, start + 0.5, cell * count - 1, cell * count - 1);
  context.strokeStyle = style.getPropertyValue("--ink");
  const [row, column] = at;
  context.lineWidth = 2;
  context.strokeRect(start + column * cell, start + row * cell, cell, cell);
  if (start > 0) drawLabels(context, units, { start, cell }, at, [style.color, style.fontFamily]);
}

function drawLabels(
  context: CanvasRenderingContext2D,
  units: readonly Unit[],
  { start, cell }: { start: number; cell: number },
  [row, column]: Cell,
  [ink, family]: readonly [string, string],
): void {
  context.fillStyle = ink;
  context.textBaseline = "middle";
  const font = `${Math.min(12, cell)}px ${family}`;
  units.forEach(({ label }, i) => {
    const middle = start + (i + 0.5) * cell;
    context.font = i === row ? `bold ${font}` : font;
    context.textAlign = "right";
    context.fillText(label, start - 6, middle, start - 6);
    context.font = i === column ? `bold ${font}` : font;
    context.save();
    context.translate(middle, start - 6);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(label, 0, 0, start - 6);
    context.restore();
  });
}
