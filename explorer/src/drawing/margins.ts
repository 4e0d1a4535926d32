/** What stands beside a map: sums of its columns, entropies of its rows, the borders of texts, its largest cells. */

import type { Unit } from "../data/overview.js";
import type { Cell } from "./camera.js";

export interface Margins {
  /** The mass that each column receives, over all rows, (N,). */
  readonly received: Float32Array;
  /** The entropy of each row in nats, (N,); a row is divided by its sum first. */
  readonly entropy: Float32Array;
}

/** The margins of a map (size, size) without numbers below 0. */
export function marginsOf(map: Float32Array, size: number): Margins {
  const received = new Float32Array(size);
  const entropy = new Float32Array(size);
  for (let row = 0; row < size; row++) {
    let [sum, logs] = [0, 0];
    for (let column = 0; column < size; column++) {
      const weight = map[row * size + column]!;
      received[column] = received[column]! + weight;
      if (weight <= 0) continue;
      sum += weight;
      logs += weight * Math.log(weight);
    }
    // −Σ p/s ln(p/s) = ln s − Σ p ln p / s; rounding may lead below 0.
    entropy[row] = sum > 0 ? Math.max(0, Math.log(sum) - logs / sum) : 0;
  }
  return { received, entropy };
}

/** The indices before which another text begins. */
export function borders(units: readonly Pick<Unit, "segment">[]): number[] {
  return units.flatMap(({ segment }, i) => (i > 0 && segment !== units[i - 1]!.segment ? [i] : []));
}

/** The largest cells of a map, largest first, ties in reading order. */
export function largestCells(map: Float32Array, size: number, count: number): Cell[] {
  const best: number[] = [];
  for (let i = 0; i < map.length; i++) {
    if (best.length === count && map[i]! <= map[best[count - 1]!]!) continue;
    let at = best.length;
    while (at > 0 && map[best[at - 1]!]! < map[i]!) at--;
    best.splice(at, 0, i);
    best.length = Math.min(best.length, count);
  }
  return best.map((i) => ({ row: Math.floor(i / size), column: i % size }));
}
