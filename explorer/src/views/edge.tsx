/** The weight from one pinned token to another, in every head. */

import { rowOf } from "../data/maps.js";
import type { Overview } from "../data/overview.js";
import { weightText } from "../drawing/numbers.js";
import { allHeads, sortedHeads } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import { sentence } from "../layout/Problems.js";
import type { HeadId } from "../state/fields.js";
import { useComputed, useSignalEffect } from "../state/signals.js";
import { headName, type Store, sameHead } from "../state/store.js";
import { RankedHeads, type Rated } from "./ranking.js";
import type { ViewProps } from "./view.js";

export interface Edge extends Rated {
  readonly error: Error | null;
}

/** Null unless a query and a key are pinned. */
export function useEdge(overview: Overview): Edge | null {
  const store = useStore();
  return useComputed(() => edgeOf(store, overview)).value;
}

function edgeOf(store: Store, overview: Overview): Edge | null {
  const pinned = store.edgeIn(overview);
  if (pinned === null) return null;
  const [query, key] = pinned.map((position) => overview.units[position]!.label);
  const edge = { overview, title: `“${query}” → “${key}”`, error: null };
  const { loader } = store;
  if (loader.source.held) {
    const [i, j] = pinned.map((position) => overview.indexOf.get(position)!);
    // A file holds some of the layers.
    const rate = ([layer, head]: HeadId): number => {
      const maps = loader.layer(overview.subject, layer).value;
      return maps.state === "ready" ? rowOf(maps.value, head, i!, "from")[j!]! : Number.NaN;
    };
    return { ...edge, rate };
  }
  // Rollout is one map of all heads: beside it stand the probabilities that it is made of.
  const { weights } = overview.subject;
  const subject = weights === "rollout" ? { ...overview.subject, weights: "probability" as const } : overview.subject;
  const loaded = loader.part(subject, {
    layers: Array.from({ length: overview.layers }, (_, layer) => layer),
    queries: [pinned[0]],
    keys: [pinned[1]],
    dtype: "float32",
  }).value;
  const data = loaded.state === "ready" ? loaded.value.attention!.data : null;
  const rate = ([layer, head]: HeadId): number => data?.[layer * overview.heads + head] ?? Number.NaN;
  return { ...edge, rate, error: loaded.state === "failed" ? loaded.error : null };
}

/** The weight in the current head, and its place among all heads. */
export function EdgeWeight({ overview }: ViewProps) {
  const store = useStore();
  const edge = useComputed(() => edgeOf(store, overview));
  const told = useComputed(() => {
    const id = store.headsOf(overview).at(-1)!;
    const now = edge.value;
    if (now === null) return store.edging.value ? "Pin the token that it looks at." : "";
    const all = sortedHeads(allHeads(overview), now.rate, true);
    const rank = all.findIndex((other) => sameHead(other, id)) + 1;
    return `${now.title}: ${weightText(now.rate(id))} in ${headName(id)}, rank ${rank} of ${all.length}.`;
  });
  useSignalEffect(() => {
    if (told.value !== "") store.spoken.value = told.value;
  });
  if (told.value === "") return null;
  const { error = null } = edge.value ?? {};
  return <p class={error === null ? "edge-weight" : "problem"}>{error === null ? told.value : sentence(error)}</p>;
}

/** The heads in which it weighs most. */
export function EdgeHeads({ overview }: ViewProps) {
  const edge = useEdge(overview);
  return edge === null ? null : <RankedHeads {...edge} />;
}
