/** Draws a flow: a column for each layer, the edges between them, and rollout beside the input. */

import type { Unit } from "../../data/overview.js";
import { place as placeOn, type Scale } from "../../drawing/colours.js";
import type { Edge, Flow } from "../../drawing/flow.js";
import type { Size } from "../canvas.js";
import { cut, FONT, type Inks, labelOf } from "./ink.js";

export const ROW = 22;
export const HEADER = 34;
const GAP = 8;
const RADIUS = 7;
/** Names of columns stand at least this far apart. */
const NAME_PIXELS = 34;

export interface FlowScene {
  readonly size: Size;
  readonly kept: readonly Unit[];
  readonly flow: Flow;
  /** Indices of tokens, from the top. */
  readonly rows: readonly number[];
  /** (N,), or null before it is there. */
  readonly rollout: Float32Array | null;
  /** The index of the token that is pointed at. */
  readonly at: number | null;
  readonly scale: Scale;
}

interface Place {
  readonly bars: number;
  readonly labels: number;
  readonly left: number;
  readonly right: number;
  readonly x: (column: number) => number;
  readonly y: (index: number) => number;
}

export function drawFlow(context: CanvasRenderingContext2D, scene: FlowScene, inks: Inks): void {
  const { flow, rows, at, kept, size } = scene;
  const place = placeOf(scene);
  if (at !== null && rows.includes(at)) {
    context.fillStyle = inks.line;
    context.globalAlpha = 0.5;
    context.fillRect(0, place.y(at) - ROW / 2, size.width, ROW);
    context.globalAlpha = 1;
  }
  drawHeader(context, scene, place, inks);
  drawEdges(context, scene, place, inks);
  flow.columns.forEach((shares, column) => {
    for (const index of rows) {
      const share = shares.get(index) ?? 0;
      context.beginPath();
      context.arc(place.x(column), place.y(index), share > 0 ? 2 + RADIUS * Math.sqrt(share) : 1, 0, 2 * Math.PI);
      context.fillStyle = share > 0 ? inks.accent : inks.line;
      context.fill();
    }
  });
  drawBars(context, scene, place, inks);
  context.textBaseline = "middle";
  const begun = flow.columns.at(-1)!;
  for (const index of rows) {
    const y = place.y(index);
    const share = flow.columns[0]!.get(index) ?? 0;
    context.font = `${index === at ? "600 " : ""}13px ${FONT}`;
    context.fillStyle = share > 0 || begun.has(index) ? inks.ink : inks.soft;
    context.textAlign = "right";
    // Where tokens are left out, positions tell equal ones apart.
    const label =
      rows.length < kept.length ? `${labelOf(kept[index]!)} ${kept[index]!.position}` : labelOf(kept[index]!);
    context.fillText(cut(context, label, place.labels - GAP), place.left - 2 * GAP, y);
    if (!begun.has(index)) continue;
    context.font = `600 13px ${FONT}`;
    context.textAlign = "left";
    context.fillStyle = inks.ink;
    context.fillText(
      cut(context, labelOf(kept[index]!), size.width - place.right - 2 * GAP),
      place.right + 2 * GAP,
      y,
    );
  }
}

/** The token of the row at a height; null outside of the rows. */
export function indexAt(rows: readonly number[], y: number): number | null {
  return rows[Math.floor((y - HEADER) / ROW)] ?? null;
}

function placeOf({ size: { width }, rows, flow }: FlowScene): Place {
  const bars = Math.round(Math.min(90, width * 0.14));
  const labels = Math.round(Math.min(130, width * 0.22));
  const [left, right] = [bars + labels + 2 * GAP, width - Math.round(Math.min(120, width * 0.2))];
  const steps = flow.columns.length - 1;
  const order = new Map(rows.map((index, row) => [index, row]));
  return {
    bars,
    labels,
    left,
    right,
    x: (column) => left + ((right - left) * column) / Math.max(steps, 1),
    y: (index) => HEADER + (order.get(index)! + 0.5) * ROW,
  };
}

function drawHeader(context: CanvasRenderingContext2D, { flow }: FlowScene, place: Place, inks: Inks): void {
  context.font = `12px ${FONT}`;
  context.fillStyle = inks.soft;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText("rollout", 0, HEADER / 2);
  context.textAlign = "center";
  const steps = flow.columns.length - 1;
  const every = Math.max(1, Math.ceil(NAME_PIXELS / ((place.right - place.left) / Math.max(steps, 1))));
  // The last column is always named; counting from it keeps the distances even.
  for (let column = steps; column >= 0; column -= every) {
    context.fillText(column === 0 ? "input" : `L${column - 1}`, place.x(column), HEADER / 2);
  }
}

/** Edges, the strongest on top. Those of the token that is pointed at stand out. */
function drawEdges(context: CanvasRenderingContext2D, { flow, at, rows }: FlowScene, place: Place, inks: Inks): void {
  const isOwn = ({ query, key }: Edge) => at === null || !rows.includes(at) || query === at || key === at;
  const order = [...flow.edges].sort((a, b) => Number(isOwn(a)) - Number(isOwn(b)) || a.share - b.share);
  context.strokeStyle = inks.accent;
  context.lineCap = "round";
  for (const edge of order) {
    const { layer, query, key, share } = edge;
    const [x0, y0, x1, y1] = [place.x(layer + 1), place.y(query), place.x(layer), place.y(key)];
    const middle = (x0 + x1) / 2;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(middle, y0, middle, y1, x1, y1);
    context.lineWidth = 0.75 + 8 * Math.sqrt(share);
    context.globalAlpha = (isOwn(edge) ? 1 : 0.2) * (0.25 + 0.75 * Math.sqrt(share));
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** The rollout of each token, which leaves nothing out. */
function drawBars(
  context: CanvasRenderingContext2D,
  { rollout, rows, scale }: FlowScene,
  place: Place,
  inks: Inks,
): void {
  if (rollout === null) return;
  const most = rows.reduce((all, index) => Math.max(all, rollout[index]!), 0);
  context.fillStyle = inks.soft;
  for (const index of rows) {
    const width = place.bars * placeOn(rollout[index]!, 0, most, scale);
    context.fillRect(0, place.y(index) - 5, Math.max(width, 0.5), 10);
  }
}
