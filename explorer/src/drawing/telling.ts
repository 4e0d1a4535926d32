/** Which head and which token of an input there is most to see in: what is pinned before anything is chosen. */

import type { Overview, Unit } from "../data/overview.js";
import type { HeadId } from "../state/fields.js";
import { allHeads, statisticOf } from "./statistics.js";

/** What heads of most models look at; what is left of a row goes to words farther away. */
const COMMON = ["self", "previous", "next", "special"] as const;

/** The mean weight that a head has on tokens that are neither special nor the token itself nor beside it. */
export function farther(overview: Pick<Overview, "summary">, id: HeadId): number {
  return Math.max(0, 1 - COMMON.reduce((sum, name) => sum + (statisticOf(overview, name, id) || 0), 0));
}

/** The head that looks most surely at words farther away: confidence times what goes to them. */
export function tellingHead(overview: Pick<Overview, "summary" | "layers" | "heads">): HeadId {
  const rate = (id: HeadId) => (statisticOf(overview, "confidence", id) || 0) * farther(overview, id);
  return allHeads(overview).reduce((best, id) => (rate(id) > rate(best) ? id : best));
}

/** An edge of a map, by the indices of its row and its column. */
export interface Telling {
  readonly query: number;
  readonly key: number;
  readonly weight: number;
}

/** The largest weight of a map (N, N) between two words that are not beside each other; null if there are none. */
export function tellingEdge(map: Float32Array, kept: readonly Pick<Unit, "special">[]): Telling | null {
  let best: Telling | null = null;
  for (let query = 0; query < kept.length; query++) {
    for (let key = 0; key < kept.length; key++) {
      const weight = map[query * kept.length + key]!;
      if (kept[query]!.special || kept[key]!.special || Math.abs(query - key) < 2) continue;
      if (best === null || weight > best.weight) best = { query, key, weight };
    }
  }
  return best;
}
