/** Pins something on the first answer: where nothing is chosen, there is nothing to see. */

import { batch, effect } from "@preact/signals-core";
import { mapOf } from "../data/maps.js";
import type { Overview } from "../data/overview.js";
import { fitsWhole } from "../data/requests.js";
import { weightText } from "../drawing/numbers.js";
import { statisticOf } from "../drawing/statistics.js";
import { farther, type Telling, tellingEdge, tellingHead } from "../drawing/telling.js";
import type { HeadId } from "../state/fields.js";
import { headName, type Store } from "../state/store.js";

/** Follow the store until the returned function is called. */
export function followFirstLook(store: Store): () => void {
  const { fields, loader } = store;
  return effect(() => {
    const shown = store.shown.value;
    if (shown === null) return;
    if (fields.heads.value.length > 0 || fields.pinned.value.length > 0) return;
    const id = tellingHead(shown);
    let edge: Telling | null = null;
    if (fitsWhole(shown.tokens, shown.heads, store.limit.value)) {
      const maps = loader.layer(shown.subject, id[0]).value;
      if (maps.state === "loading") return;
      if (maps.state === "ready") edge = tellingEdge(mapOf(maps.value, id[1]), shown.kept);
    }
    batch(() => {
      store.begin(id, edge === null ? null : shown.kept[edge.query]!.position, told(shown, id, edge));
    });
  });
}

/** Why these are pinned. */
function told(overview: Overview, id: HeadId, edge: Telling | null): string {
  const far = weightText(farther(overview, id));
  const sure = weightText(statisticOf(overview, "confidence", id));
  const head = `For a start: ${headName(id)}, which looks most surely at words farther away (weight ${far} on them, largest ${sure})`;
  if (edge === null) return `${head}.`;
  const [query, key] = [overview.kept[edge.query]!.label, overview.kept[edge.key]!.label];
  return `${head}, and its “${query}”, which looks at “${key}” with ${weightText(edge.weight)}.`;
}
