/** Loads how much weight each head has on special tokens, [CLS] and [SEP] apart, which no statistic tells. */

import type { Overview } from "../data/overview.js";
import { type SpecialMass, specialsOf } from "../drawing/kinds.js";
import type { Store } from "../state/store.js";

/** Of longer inputs these columns of all heads would be megabytes. */
const MOST_TOKENS = 1024;

/** The mean weights of all heads on both groups; null before they are there, and of long inputs. */
export function specialMass(store: Store, overview: Overview): SpecialMass | null {
  const { groups } = specialsOf(overview);
  const columns = groups.flat();
  const size = overview.kept.length;
  if (columns.length === 0 || size > MOST_TOKENS) return null;
  // The statistics of rollout and of scores are those of the probabilities, too.
  const { weights } = overview.subject;
  const subject = { ...overview.subject, weights: weights === "value_norm" ? weights : ("probability" as const) };
  const loaded = store.loader.part(subject, {
    layers: Array.from({ length: overview.layers }, (_, layer) => layer),
    keys: columns.map((i) => overview.kept[i]!.position),
    dtype: "float16",
  }).value;
  if (loaded.state !== "ready") return null;
  const { data } = loaded.value.attention!; // (L, H, N, columns)
  const count = columns.length;
  return ([layer, head]) => {
    const start = (layer * overview.heads + head) * size * count;
    const sums: [number, number] = [0, 0];
    for (let i = 0; i < size * count; i++) {
      const group = i % count < groups[0].length ? 0 : 1;
      sums[group] += data[start + i]! / size;
    }
    return sums;
  };
}
