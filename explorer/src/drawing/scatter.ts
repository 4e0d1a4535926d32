/** Places heads in a plane by their statistics alone: how far they look, and how widely. */

import type { Overview } from "../data/overview.js";
import type { HeadId } from "../state/fields.js";
import { type Doing, doings, type SpecialMass } from "./kinds.js";
import { allHeads, limitOf, statisticOf } from "./statistics.js";

export interface Point {
  readonly id: HeadId;
  /** Mean distance over the longest one, 0 to 1. */
  readonly x: number;
  /** Entropy over the largest one, 0 to 1. */
  readonly y: number;
  readonly confidence: number;
  readonly doing: Doing;
}

/** A plot in CSS pixels. */
export interface Plot {
  readonly width: number;
  readonly height: number;
  /** The ends of the x axis and of the y axis. */
  readonly x: readonly [number, number];
  readonly y: readonly [number, number];
}

export interface Box {
  readonly x0: number;
  readonly y0: number;
  readonly x1: number;
  readonly y1: number;
}

const MARGIN = { left: 44, right: 20, top: 16, bottom: 40 } as const;
const LEAST_RANGE = 0.1;
const PADDING = 0.06;

export function pointsOf(overview: Overview, special: SpecialMass | null): Point[] {
  const doing = doings(overview, special);
  const size = overview.kept.length;
  const share = (name: "mean_distance" | "entropy", id: HeadId) =>
    statisticOf(overview, name, id) / Math.max(limitOf(name, size), Number.MIN_VALUE) || 0;
  return allHeads(overview).map((id) => ({
    id,
    x: share("mean_distance", id),
    y: share("entropy", id),
    confidence: statisticOf(overview, "confidence", id) || 0,
    doing: doing(id),
  }));
}

/** Axes that hold all points, with some room around them. */
export function plotOf(points: readonly Point[], width: number, height: number): Plot {
  const ends = (numbers: number[]): [number, number] => {
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    const middle = (low + high) / 2;
    const half = Math.max(high - low, LEAST_RANGE) * (0.5 + PADDING);
    return [middle - half, middle + half];
  };
  return { width, height, x: ends(points.map(({ x }) => x)), y: ends(points.map(({ y }) => y)) };
}

export function toPixels({ width, height, x: [x0, x1], y: [y0, y1] }: Plot, x: number, y: number): [number, number] {
  const across = width - MARGIN.left - MARGIN.right;
  const down = height - MARGIN.top - MARGIN.bottom;
  return [MARGIN.left + (across * (x - x0)) / (x1 - x0), MARGIN.top + (down * (y1 - y)) / (y1 - y0)];
}

export function radiusOf({ confidence }: Point): number {
  return 3 + 6 * Math.sqrt(Math.min(Math.max(confidence, 0), 1));
}

/** The point nearest to a place in pixels, within a finger's reach. */
export function nearest(
  plot: Plot,
  points: readonly Point[],
  at: readonly [number, number],
  reach = 14,
): Point | null {
  let best: Point | null = null;
  let least = reach;
  for (const point of points) {
    const [x, y] = toPixels(plot, point.x, point.y);
    const distance = Math.hypot(x - at[0], y - at[1]);
    if (distance <= least) [best, least] = [point, distance];
  }
  return best;
}

/** The points in a box, whichever of its corners come first. */
export function inBox(plot: Plot, points: readonly Point[], { x0, y0, x1, y1 }: Box): Point[] {
  return points.filter((point) => {
    const [x, y] = toPixels(plot, point.x, point.y);
    return x >= Math.min(x0, x1) && x <= Math.max(x0, x1) && y >= Math.min(y0, y1) && y <= Math.max(y0, y1);
  });
}

/** The next point to the right (or left), or above (or below). */
export function neighbour(points: readonly Point[], from: HeadId, axis: "x" | "y", by: 1 | -1): Point | null {
  const order = [...points].sort((a, b) => a[axis] - b[axis]);
  const index = order.findIndex(({ id }) => id[0] === from[0] && id[1] === from[1]);
  return order[index + by] ?? null;
}

/** Round numbers within a range, from two to seven of them. */
export function ticks([low, high]: readonly [number, number]): number[] {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2].find((one) => (high - low) / one <= 6) ?? 0.5;
  const first = Math.ceil(low / step);
  const count = Math.floor(high / step) - first + 1;
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toFixed(2)));
}
