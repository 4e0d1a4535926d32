/** Draws the scatter of heads on a canvas. */

import { KINDS, type Kind } from "../drawing/kinds.js";
import { type Box, type Plot, type Point, radiusOf, ticks, toPixels } from "../drawing/scatter.js";
import type { HeadId } from "../state/fields.js";
import { headName, sameHead } from "../state/store.js";

/** Colours of Okabe and Ito, which those who are colour-blind can tell apart; shapes tell the same. */
const LOOKS: Record<Kind, { colour: string; corners: number; turn: number }> = {
  previous: { colour: "#0f7fc4", corners: 3, turn: Math.PI },
  next: { colour: "#d55e00", corners: 3, turn: 0 },
  self: { colour: "#009e73", corners: 4, turn: Math.PI / 4 },
  first: { colour: "#cc79a7", corners: 40, turn: 0 },
  last: { colour: "#a07400", corners: 4, turn: 0 },
  broad: { colour: "#3a9bc4", corners: 6, turn: 0 },
  other: { colour: "#8a8a8a", corners: 5, turn: -Math.PI / 2 },
};

export const KIND_LEGEND = KINDS.map((kind) => ({
  kind,
  colour: LOOKS[kind].colour,
  path: `M${corners(kind, 6)
    .map((corner) => corner.map((one) => one.toFixed(2)).join(" "))
    .join("L")}Z`,
}));

/** Draw everything; the context draws in CSS pixels. */
export function drawScatter(
  context: CanvasRenderingContext2D,
  plot: Plot,
  points: readonly Point[],
  chosen: readonly HeadId[],
  pointed: Point | null,
  brush: Box | null,
): void {
  const { color } = getComputedStyle(context.canvas);
  context.clearRect(0, 0, plot.width, plot.height);
  context.fillStyle = color;
  context.strokeStyle = color;
  context.font = "12px system-ui, sans-serif";
  drawAxes(context, plot);
  const isChosen = ({ id }: Point) => chosen.some((other) => sameHead(other, id));
  // Those that are chosen lie on top.
  for (const point of [...points].sort((a, b) => Number(isChosen(a)) - Number(isChosen(b)))) {
    drawPoint(context, plot, point, isChosen(point), color);
  }
  const named = points.filter((point) => isChosen(point) || point === pointed);
  for (const point of named.length <= 24 ? named : named.filter((one) => one === pointed)) {
    const [x, y] = toPixels(plot, point.x, point.y);
    const name = headName(point.id);
    const left = x + radiusOf(point) + 4 + context.measureText(name).width > plot.width;
    context.textAlign = left ? "right" : "left";
    context.fillStyle = color;
    context.fillText(name, x + (left ? -1 : 1) * (radiusOf(point) + 4), y + 4);
  }
  if (brush !== null) {
    context.globalAlpha = 0.12;
    context.fillRect(brush.x0, brush.y0, brush.x1 - brush.x0, brush.y1 - brush.y0);
    context.globalAlpha = 1;
    context.strokeRect(brush.x0, brush.y0, brush.x1 - brush.x0, brush.y1 - brush.y0);
  }
}

function drawAxes(context: CanvasRenderingContext2D, plot: Plot): void {
  const { width, height, x, y } = plot;
  const [left, bottom] = toPixels(plot, x[0], y[0]);
  const [right, top] = toPixels(plot, x[1], y[1]);
  context.lineWidth = 1;
  context.textAlign = "center";
  for (const tick of ticks(x)) {
    const [at] = toPixels(plot, tick, 0);
    line(context, at, top, at, bottom);
    context.fillText(String(tick), at, bottom + 16);
  }
  context.textAlign = "right";
  for (const tick of ticks(y)) {
    const [, at] = toPixels(plot, 0, tick);
    line(context, left, at, right, at);
    context.fillText(String(tick), left - 6, at + 4);
  }
  context.fillText("mean distance / longest distance →", width - 20, height - 4);
  context.save();
  context.translate(11, top);
  context.rotate(-Math.PI / 2);
  context.fillText("entropy / largest entropy →", 0, 0);
  context.restore();
}

function drawPoint(context: CanvasRenderingContext2D, plot: Plot, point: Point, chosen: boolean, ink: string): void {
  const [x, y] = toPixels(plot, point.x, point.y);
  context.beginPath();
  for (const [dx, dy] of corners(point.doing.kind, radiusOf(point))) context.lineTo(x + dx, y + dy);
  context.closePath();
  context.globalAlpha = chosen ? 1 : 0.65;
  context.fillStyle = LOOKS[point.doing.kind].colour;
  context.fill();
  context.globalAlpha = 1;
  if (!chosen) return;
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.stroke();
}

function line(context: CanvasRenderingContext2D, ...[x0, y0, x1, y1]: [number, number, number, number]): void {
  context.globalAlpha = 0.15;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.globalAlpha = 1;
}

/** The corners of a shape: previous points left, next points right. */
function corners(kind: Kind, radius: number): [number, number][] {
  const { corners: count, turn } = LOOKS[kind];
  return Array.from({ length: count }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / count;
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  });
}
