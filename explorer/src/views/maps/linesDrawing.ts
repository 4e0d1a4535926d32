/** Draws tokens in two columns, the lines between them, and a strip for each head beside the tokens. */

import type { Unit } from "../../data/overview.js";
import { cssOf } from "../../drawing/hues.js";
import type { Lines } from "../../drawing/lines.js";
import { borders } from "../../drawing/margins.js";
import { crosses, type Layer, opacity, rasterise } from "../../drawing/raster.js";
import type { HeadId } from "../../state/fields.js";
import { headName } from "../../state/store.js";
import type { Size } from "../canvas.js";
import { cut, FONT, type Inks, labelOf } from "./ink.js";

/** The lines of a head, or of a rollout. */
export interface HeadLines extends Layer {
  readonly id: HeadId;
  readonly name: string;
}

/** One token's weights in each head, (N,) each, in the order of the heads. */
export interface Own {
  readonly position: number;
  readonly index: number;
  readonly weights: readonly (Float32Array | null)[];
}

export interface Scene {
  readonly size: Size;
  /** The height of a row, and how far the first lies above the rows' upper edge. */
  readonly row: number;
  readonly offset: number;
  readonly heads: number;
  readonly direction: "from" | "to";
}

/** The image of all lines, and what it was drawn for. */
export interface Dense {
  readonly image: HTMLCanvasElement;
  readonly scene: Scene;
}

export interface Columns {
  /** Where lines begin and end. */
  readonly left: number;
  readonly right: number;
  /** The upper edge of the rows. */
  readonly top: number;
  readonly labels: number;
}

const STRIP = 12;
const HEADER = 58;
const GAP = 6;
/** From this height of rows on, they have labels. */
const LABELLED = 11;
/** More lines than these are drawn into an image. */
const MOST_STROKES = 3000;
const STEPS = 10;

/** Where things stand: the strips beside the tokens that lines lead to. */
export function columnsOf({ size, heads, direction }: Pick<Scene, "size" | "heads" | "direction">): Columns {
  const labels = Math.round(Math.min(150, size.width * 0.27));
  const strips = heads * STRIP + GAP;
  const left = labels + (direction === "to" ? strips : GAP);
  const right = size.width - labels - (direction === "from" ? strips : GAP);
  return { left, right, top: HEADER, labels };
}

/** The image of all lines, if there are too many for strokes. */
export function imageOf(all: readonly Layer[], scene: Scene): HTMLCanvasElement | null {
  const { left, right, top } = columnsOf(scene);
  const [width, height] = [Math.round(right - left), Math.round(scene.size.height - top)];
  if (width < 1 || height < 1 || countSeen(all, scene, height) <= MOST_STROKES) return null;
  const image = document.createElement("canvas");
  image.width = width;
  image.height = height;
  const pixels = rasterise(all, { width, height, row: scene.row, offset: scene.offset });
  image.getContext("2d")!.putImageData(new ImageData(pixels, width, height), 0, 0);
  return image;
}

export function drawLines(
  context: CanvasRenderingContext2D,
  kept: readonly Unit[],
  scene: Scene,
  all: readonly HeadLines[],
  dense: Dense | null,
  own: readonly Own[],
  inks: Inks,
): void {
  const columns = columnsOf(scene);
  const { size } = scene;
  context.save();
  context.beginPath();
  context.rect(0, columns.top, size.width, size.height - columns.top);
  context.clip();
  if (dense !== null) drawDense(context, dense, scene, columns);
  else for (const layer of all) strokes(context, layer, scene, columns);
  drawBorders(context, kept, scene, columns, inks);
  drawStrips(context, scene, columns, all, own);
  drawTokens(context, kept, scene, columns, own, inks);
  context.restore();
  drawHeader(context, scene, columns, all, inks);
}

/** Draw the image where its lines lie by now: it may be older than a scroll or a zoom. */
function drawDense(
  context: CanvasRenderingContext2D,
  { image, scene: own }: Dense,
  scene: Scene,
  columns: Columns,
): void {
  const factor = scene.row / own.row;
  const top = columns.top + own.offset * factor - scene.offset;
  context.drawImage(image, columns.left, top, columns.right - columns.left, image.height * factor);
}

/** Lines of tokens alone: out of a token, or into it. */
export function ownLines(
  own: readonly Own[],
  size: number,
  chosen: (row: Float32Array) => Lines,
): (head: number, to: boolean) => Lines {
  return (head, to) => {
    const rows: [number, number, number][] = own.flatMap(({ index, weights }) => {
      const row = weights[head];
      if (!row) return [];
      const lines = chosen(row);
      return Array.from(lines.keys, (key, i): [number, number, number] =>
        to ? [key, index, lines.weights[i]!] : [index, key, lines.weights[i]!],
      );
    });
    rows.sort((a, b) => a[0] - b[0]);
    const starts = new Uint32Array(size + 1);
    for (const [query] of rows) starts[query + 1] = starts[query + 1]! + 1;
    for (let i = 0; i < size; i++) starts[i + 1] = starts[i + 1]! + starts[i]!;
    const keys = Uint32Array.from(rows, ([, key]) => key);
    return { starts, keys, weights: Float32Array.from(rows, ([, , weight]) => weight) };
  };
}

function countSeen(all: readonly Layer[], { row, offset }: Scene, height: number): number {
  let count = 0;
  for (const { lines } of all) {
    for (let query = 0; query + 1 < lines.starts.length; query++) {
      const y0 = (query + 0.5) * row - offset;
      for (let i = lines.starts[query]!; i < lines.starts[query + 1]!; i++) {
        if (crosses(y0, (lines.keys[i]! + 0.5) * row - offset, height)) count++;
      }
    }
  }
  return count;
}

/** Strokes of a head; those of nearly the same opacity are one path. */
function strokes(
  context: CanvasRenderingContext2D,
  { lines, colour }: Layer,
  { row, offset, size }: Scene,
  { left, right, top }: Columns,
): void {
  // A picture records what is drawn, and cannot read a Path2D.
  const paths = Array.from({ length: STEPS + 1 }, (): [number, number][] => []);
  for (let query = 0; query + 1 < lines.starts.length; query++) {
    const y0 = (query + 0.5) * row - offset;
    for (let i = lines.starts[query]!; i < lines.starts[query + 1]!; i++) {
      const y1 = (lines.keys[i]! + 0.5) * row - offset;
      if (crosses(y0, y1, size.height - top)) paths[Math.ceil(opacity(lines.weights[i]!) * STEPS)]!.push([y0, y1]);
    }
  }
  context.strokeStyle = cssOf(colour);
  context.lineWidth = 1.5;
  paths.forEach((path, step) => {
    if (path.length === 0) return;
    context.globalAlpha = step / STEPS;
    context.beginPath();
    for (const [y0, y1] of path) {
      context.moveTo(left, top + y0);
      context.lineTo(right, top + y1);
    }
    context.stroke();
  });
  context.globalAlpha = 1;
}

/** Beside each token, the weight that the active tokens give it in each head, or it gives them. */
function drawStrips(
  context: CanvasRenderingContext2D,
  scene: Scene,
  columns: Columns,
  all: readonly HeadLines[],
  own: readonly Own[],
): void {
  if (own.length === 0) return;
  const { row } = scene;
  all.forEach(({ colour }, head) => {
    const x = stripAt(scene, columns, head);
    context.fillStyle = cssOf(colour);
    for (const i of rowsSeen(scene, columns, own[0]!.weights[head]?.length ?? 0)) {
      const weight = own.reduce((sum, { weights }) => sum + (weights[head]?.[i] ?? 0), 0);
      if (!(weight > 0)) continue;
      // The width says the same as the opacity.
      const share = opacity(weight);
      const width = (STRIP - 2) * share;
      if (width < 0.75) continue;
      context.globalAlpha = 0.35 + 0.65 * share;
      context.fillRect(x, yOf(scene, columns, i) + Math.min(1, row / 8), width, row - Math.min(2, row / 4));
    }
  });
  context.globalAlpha = 1;
}

/** A line where another text begins. */
function drawBorders(
  context: CanvasRenderingContext2D,
  kept: readonly Unit[],
  scene: Scene,
  columns: Columns,
  { soft }: Inks,
): void {
  context.fillStyle = soft;
  for (const border of borders(kept)) {
    const y = Math.round(yOf(scene, columns, border));
    context.fillRect(0, y, columns.labels, 1);
    context.fillRect(scene.size.width - columns.labels, y, columns.labels, 1);
  }
}

function drawTokens(
  context: CanvasRenderingContext2D,
  kept: readonly Unit[],
  scene: Scene,
  columns: Columns,
  own: readonly Own[],
  { ink, paper, soft }: Inks,
): void {
  const { row, size, direction } = scene;
  const labelled = row >= LABELLED;
  const every = labelled ? 1 : Math.max(1, Math.ceil(18 / row / 10) * 10);
  const active = new Set(own.map(({ index }) => index));
  context.textBaseline = "middle";
  for (const side of ["from", "to"] as const) {
    const [x, align] =
      side === "from" ? [columns.labels - GAP, "right"] : [size.width - columns.labels + GAP, "left"];
    context.textAlign = align as CanvasTextAlign;
    for (const i of rowsSeen(scene, columns, kept.length)) {
      const isActive = side === direction && active.has(i);
      if (i % every !== 0 && !isActive) continue;
      const y = yOf(scene, columns, i) + row / 2;
      context.font = `${isActive ? "600 " : ""}${Math.min(14, Math.max(11, row - 5))}px ${FONT}`;
      const text = labelled || isActive ? labelOf(kept[i]!) : String(kept[i]!.position);
      const short = cut(context, text, columns.labels - 2 * GAP);
      if (isActive) {
        const width = context.measureText(short).width + 8;
        const height = Math.max(row, 16);
        context.fillStyle = ink;
        context.fillRect(side === "from" ? x - width + 4 : x - 4, y - height / 2, width, height);
      }
      context.fillStyle = isActive ? paper : kept[i]!.special ? soft : ink;
      context.fillText(short, x, y);
    }
  }
}

/** The names of heads above their strips, and of the columns. */
function drawHeader(
  context: CanvasRenderingContext2D,
  scene: Scene,
  columns: Columns,
  all: readonly HeadLines[],
  { soft, ink }: Inks,
): void {
  context.font = `12px ${FONT}`;
  context.fillStyle = soft;
  context.textBaseline = "alphabetic";
  context.textAlign = "right";
  context.fillText("looks", columns.labels - GAP, HEADER - 10);
  context.textAlign = "left";
  context.fillText("is looked at", scene.size.width - columns.labels + GAP, HEADER - 10);
  context.textBaseline = "middle";
  all.forEach(({ name, colour }, head) => {
    const x = stripAt(scene, columns, head);
    context.fillStyle = cssOf(colour);
    context.fillRect(x, HEADER - 6, STRIP - 2, 4);
    context.save();
    context.translate(x + STRIP / 2 - 1, HEADER - 10);
    context.rotate(-Math.PI / 2);
    context.fillStyle = ink;
    context.fillText(name, 0, 0);
    context.restore();
  });
}

function stripAt({ direction, heads }: Scene, { left, right }: Columns, head: number): number {
  return direction === "from" ? right + GAP + head * STRIP : left - GAP - (heads - head) * STRIP;
}

function yOf({ row, offset }: Scene, { top }: Columns, index: number): number {
  return top + index * row - offset;
}

function* rowsSeen({ row, offset, size }: Scene, { top }: Columns, count: number): Generator<number> {
  const end = Math.min(count, Math.ceil((offset + size.height - top) / row));
  for (let i = Math.max(0, Math.floor(offset / row)); i < end; i++) yield i;
}

export function nameOf(id: HeadId, rollout: boolean): string {
  return rollout ? "rollout" : headName(id);
}
