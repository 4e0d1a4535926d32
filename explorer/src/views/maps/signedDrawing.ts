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
  /** The height of a cell in CSS pixels; by default cells are square. */
  readonly high?: number;
}

/** The room of labels, left and above, in CSS pixels. */
export const LABELS = 72;
/** Labels stand at least this far apart: of small cells only some have one, and the one that is pointed at. */
const LINE = 11;

/** How large a cell is. */
function cellOf({ width, height }: Size, { rows, columns, high }: SignedMap): { wide: number; high: number } {
  const wide = Math.max(0, (width - LABELS) / columns.length);
  const square = Math.min(wide, Math.max(0, (height - LABELS) / rows.length));
  return high ? { wide, high } : { wide: square, high: square };
}

/** The cell at a place in the frame; null beside the map. */
export function cellAt(size: Size, map: SignedMap, [x, y]: readonly [number, number]): Cell | null {
  const { wide, high } = cellOf(size, map);
  const [row, column] = [Math.floor((y - LABELS) / high), Math.floor((x - LABELS) / wide)];
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
  const { wide, high } = cellOf(size, map);
  const [across, down] = [map.columns.length, map.rows.length];
  const context = prepare(canvas, size);
  const image = new ImageData(across, down);
  paintDiverging(map.values, image.data, largestSize(map.values), dark, scale);
  const pixels = new OffscreenCanvas(across, down);
  pixels.getContext("2d")!.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(pixels, LABELS, LABELS, wide * across, high * down);
  const style = getComputedStyle(canvas);
  context.strokeStyle = style.getPropertyValue("--line");
  context.strokeRect(LABELS + 0.5, LABELS + 0.5, wide * across - 1, high * down - 1);
  context.strokeStyle = style.getPropertyValue("--ink");
  const [row, column] = at;
  context.lineWidth = 2;
  context.strokeRect(LABELS + column * wide, LABELS + row * high, wide, high);
  context.fillStyle = style.color;
  context.textBaseline = "middle";
  const labels = (names: readonly string[], own: number, cell: number, turned: boolean): void => {
    const font = `${Math.min(12, Math.max(cell, 9))}px ${style.fontFamily}`;
    const every = Math.ceil(LINE / Math.max(cell, 0.1) - 0.2);
    context.textAlign = turned ? "left" : "right";
    names.forEach((name, i) => {
      // Columns of cells that are not square have titles of blocks.
      if (!(turned && map.high) && every > 1 && i !== own && (i % every > 0 || Math.abs(i - own) * cell < LINE))
        return;
      const middle = LABELS + (i + 0.5) * cell;
      context.font = i === own ? `bold ${font}` : font;
      context.save();
      if (turned) {
        context.translate(middle, LABELS - 6);
        context.rotate(-Math.PI / 2);
        context.fillText(name, 0, 0, LABELS - 6);
      } else context.fillText(name, LABELS - 6, middle, LABELS - 6);
      context.restore();
    });
  };
  labels(map.rows, row, high, false);
  labels(map.columns, column, wide, true);
}
