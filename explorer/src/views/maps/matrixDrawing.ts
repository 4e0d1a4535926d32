/** Draws a matrix on a canvas: the map, its labels and margins; and above it what follows the pointer. */

import type { Overview, Unit } from "../../data/overview.js";
import { type Camera, type Cell, type Frame, LABELLED, seen } from "../../drawing/camera.js";
import { type ColourMap, paint, place as placeOn, type Scale } from "../../drawing/colours.js";
import { borders, type Margins } from "../../drawing/margins.js";
import type { Size } from "../canvas.js";
import { cut, FONT, type Inks, labelOf } from "./ink.js";
import type { Shown } from "./window.js";

/** Where the frame of the cells lies in the canvas. */
export interface Place extends Frame {
  readonly left: number;
  readonly top: number;
}

export interface Picture {
  readonly image: HTMLCanvasElement;
  readonly top: number;
  readonly left: number;
  readonly height: number;
  readonly width: number;
}

const BAR = 34;
const GAP = 6;
/** Between labels and cells, where pinned rows have their mark. */
const MARK = 10;
const EDGE = 8;
/** Labels stand at least this far apart. */
const LINE = 12;

/** Where the cells lie in a canvas: labels take up less of a narrow one. */
export function placeOf({ width, height }: Size, margins: boolean): Place {
  const labels = Math.round(Math.min(104, Math.max(60, width / 7)));
  const bars = margins ? BAR + 2 * GAP : EDGE;
  return { left: labels, top: labels, width: Math.max(1, width - labels - bars), height: height - labels - bars };
}

/** Each piece as an image, a pixel for each weight. */
export function picturesOf({ pieces, range }: Shown, map: ColourMap, scale: Scale): Picture[] {
  return pieces.map(({ weights, rows, columns, ...place }) => {
    const image = document.createElement("canvas");
    image.width = columns;
    image.height = rows;
    const pixels = new ImageData(columns, rows);
    paint(weights, pixels.data, map, ...range, scale);
    image.getContext("2d")!.putImageData(pixels, 0, 0);
    return { image, ...place };
  });
}

/** Draw all that does not follow the pointer. */
export function drawMatrix(
  context: CanvasRenderingContext2D,
  { kept }: Overview,
  shown: Shown,
  pictures: readonly Picture[],
  place: Place,
  camera: Camera,
  inks: Inks,
  scale: Scale,
): void {
  context.save();
  clip(context, place, shown.size, camera);
  // Smaller than pixels, cells blend: leaving some out would erase thin diagonals.
  context.imageSmoothingEnabled = camera.cell < 1;
  for (const { image, ...at } of pictures) {
    const [x, y] = toPixels(place, camera, at.left, at.top);
    context.drawImage(image, x, y, at.width * camera.cell, at.height * camera.cell);
  }
  drawBorders(context, borders(kept), shown.size, place, camera, inks);
  context.restore();
  context.font = `${fontSize(camera)}px ${FONT}`;
  drawLabels(context, kept, place, camera, inks.ink);
  if (shown.margins !== null) drawMargins(context, shown.margins, shown.size, place, camera, inks, scale);
}

interface Above {
  readonly pinned: readonly number[];
  readonly edge: readonly [query: number, key: number] | null;
  readonly direction: "from" | "to";
  readonly at: Cell | null;
}

/** Draw the rows of pinned tokens, the cell of a pinned edge, and the row and the column that cross at a cell. */
export function drawAbove(
  context: CanvasRenderingContext2D,
  { kept, indexOf }: Overview,
  size: number,
  place: Place,
  camera: Camera,
  inks: Inks,
  { pinned, edge, direction, at }: Above,
): void {
  const [width, height] = extent(place, camera, size);
  for (const position of pinned) {
    const index = indexOf.get(position)!;
    const [x, y] = toPixels(place, camera, index, index);
    const thickness = Math.max(camera.cell, 3);
    context.save();
    if (direction === "from") band(context, place.left, y, width, thickness, place, inks);
    else band(context, x, place.top, thickness, height, place, inks);
    context.restore();
  }
  if (edge !== null) {
    const [row, column] = edge.map((position) => indexOf.get(position)!);
    const [x, y] = toPixels(place, camera, column!, row!);
    context.save();
    band(context, x, y, Math.max(camera.cell, 3), Math.max(camera.cell, 3), place, inks);
    context.restore();
  }
  if (at === null) return;
  const [x, y] = toPixels(place, camera, at.column, at.row);
  context.save();
  clip(context, place, size, camera);
  // Two strokes are seen on light and on dark cells.
  for (const [colour, line] of [
    [inks.paper, 3],
    [inks.ink, 1],
  ] as const) {
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.globalAlpha = line === 3 ? 0.5 : 0.9;
    context.strokeRect(place.left - 4, y, width + 8, camera.cell);
    context.strokeRect(x, place.top - 4, camera.cell, height + 8);
  }
  context.restore();
  named(context, kept[at.row]!, place, y + camera.cell / 2, inks, false);
  named(context, kept[at.column]!, place, x + camera.cell / 2, inks, true);
}

function toPixels({ left, top }: Place, { cell, x, y }: Camera, column: number, row: number): [number, number] {
  return [left + (column - x) * cell, top + (row - y) * cell];
}

/** How much of the frame the map fills. */
function extent({ width, height }: Frame, { cell }: Camera, size: number): [number, number] {
  return [Math.min(width, size * cell), Math.min(height, size * cell)];
}

function clip(context: CanvasRenderingContext2D, place: Place, size: number, camera: Camera): void {
  context.beginPath();
  context.rect(place.left, place.top, ...extent(place, camera, size));
  context.clip();
}

function fontSize({ cell }: Camera): number {
  return cell < LABELLED ? 11 : Math.min(13, Math.max(LABELLED, cell - 2));
}

function drawBorders(
  context: CanvasRenderingContext2D,
  all: readonly number[],
  size: number,
  place: Place,
  camera: Camera,
  inks: Inks,
): void {
  const [width, height] = extent(place, camera, size);
  for (const [colour, line] of [
    [inks.paper, 3],
    [inks.ink, 1],
  ] as const) {
    context.strokeStyle = colour;
    context.lineWidth = line;
    for (const border of all) {
      const [x, y] = toPixels(place, camera, border, border);
      stroke(context, x, place.top, x, place.top + height);
      stroke(context, place.left, y, place.left + width, y);
    }
  }
}

/** The tokens beside rows and above columns; where cells are too small, every second, fifth, … with its position. */
function drawLabels(
  context: CanvasRenderingContext2D,
  kept: readonly Unit[],
  place: Place,
  camera: Camera,
  ink: string,
): void {
  const { cell } = camera;
  const every = cell >= LABELLED ? 1 : niceStep(LINE / cell);
  const text = (i: number) => (every === 1 ? labelOf(kept[i]!) : `${labelOf(kept[i]!)} ${kept[i]!.position}`);
  context.fillStyle = ink;
  context.textBaseline = "middle";
  const space = place.left - MARK;
  for (const i of steps(seen(camera.y, place.height, cell, kept.length), every)) {
    const y = place.top + (i + 0.5 - camera.y) * cell;
    if (y < place.top || y > place.top + place.height) continue;
    context.textAlign = "right";
    context.fillText(cut(context, text(i), space), space, y);
  }
  context.textAlign = "left";
  for (const i of steps(seen(camera.x, place.width, cell, kept.length), every)) {
    const x = place.left + (i + 0.5 - camera.x) * cell;
    if (x < place.left || x > place.left + place.width) continue;
    context.save();
    context.translate(x, place.top - MARK);
    context.rotate(-Math.PI / 2);
    context.fillText(cut(context, text(i), place.top - MARK), 0, 0);
    context.restore();
  }
}

/** Bars of the entropy of rows at the right and of the mass that columns receive below. */
function drawMargins(
  context: CanvasRenderingContext2D,
  { received, entropy }: Margins,
  size: number,
  place: Place,
  camera: Camera,
  inks: Inks,
  scale: Scale,
): void {
  const { cell } = camera;
  const [width, height] = extent(place, camera, size);
  const [right, bottom] = [place.left + width + GAP, place.top + height + GAP];
  const gap = cell > 4 ? 1 : 0;
  context.fillStyle = inks.soft;
  const most = Math.log(Math.max(size, 2));
  context.save();
  clipTo(context, right, place.top, BAR, height);
  for (const row of steps(seen(camera.y, height, cell, size), 1)) {
    const y = place.top + (row - camera.y) * cell;
    context.fillRect(right, y, (BAR * entropy[row]!) / most, Math.max(cell - gap, 0.5));
  }
  context.restore();
  const largest = received.reduce((a, b) => Math.max(a, b), 0);
  context.save();
  clipTo(context, place.left, bottom, width, BAR);
  for (const column of steps(seen(camera.x, width, cell, size), 1)) {
    const x = place.left + (column - camera.x) * cell;
    context.fillRect(x, bottom, Math.max(cell - gap, 0.5), BAR * placeOn(received[column]!, 0, largest, scale));
  }
  context.restore();
  context.font = `11px ${FONT}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.fillText("received", place.left - GAP, bottom + BAR / 2);
  context.save();
  context.translate(right + BAR / 2, place.top - GAP);
  context.rotate(-Math.PI / 2);
  context.textAlign = "left";
  context.fillText("entropy", 0, 0);
  context.restore();
}

function band(
  context: CanvasRenderingContext2D,
  ...[x, y, width, height, place, { accent, paper }]: [number, number, number, number, Place, Inks]
): void {
  clipTo(context, 0, 0, place.left + place.width, place.top + place.height);
  const row = width > height;
  if (row ? y + height < place.top : x + width < place.left) return;
  context.strokeStyle = paper;
  context.lineWidth = 4;
  context.strokeRect(x, y, width, height);
  context.strokeStyle = accent;
  context.lineWidth = 2;
  context.strokeRect(x, y, width, height);
  // A mark at the edge tells a pinned row without its colour.
  context.fillStyle = accent;
  context.beginPath();
  const [tipX, tipY] = row ? [x - 1, y + height / 2] : [x + width / 2, y - 1];
  context.moveTo(tipX, tipY);
  context.lineTo(row ? tipX - 6 : tipX - 4, row ? tipY - 4 : tipY - 6);
  context.lineTo(row ? tipX - 6 : tipX + 4, row ? tipY + 4 : tipY - 6);
  context.fill();
}

/** The label of a row or column that is pointed at, on ground of its own. */
function named(
  context: CanvasRenderingContext2D,
  unit: Unit,
  place: Place,
  at: number,
  { ink, paper }: Inks,
  turned: boolean,
): void {
  const space = (turned ? place.top : place.left) - MARK;
  context.save();
  context.font = `600 12px ${FONT}`;
  context.textBaseline = "middle";
  if (turned) {
    context.translate(at, place.top - MARK);
    context.rotate(-Math.PI / 2);
  } else context.translate(place.left - MARK, at);
  const text = cut(context, labelOf(unit), space);
  const start = turned ? -2 : -space;
  context.fillStyle = ink;
  context.fillRect(start, -9, space + 2, 18);
  context.fillStyle = paper;
  context.textAlign = turned ? "left" : "right";
  context.fillText(text, 0, 0);
  context.restore();
}

function clipTo(context: CanvasRenderingContext2D, ...box: [number, number, number, number]): void {
  context.beginPath();
  context.rect(...box);
  context.clip();
}

function stroke(context: CanvasRenderingContext2D, ...[x0, y0, x1, y1]: [number, number, number, number]): void {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

function* steps([first, end]: readonly [number, number], every: number): Generator<number> {
  for (let i = Math.ceil(first / every) * every; i < end; i += every) yield i;
}

/** The least of 1, 2, 5, 10, 20, … that is not below a number. */
function niceStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((one) => one * power).find((step) => step >= least)!;
}
