/** The current head, larger, with its statistics. */

import { useMemo } from "preact/hooks";
import { mapOf } from "../data/maps.js";
import type { Overview } from "../data/overview.js";
import { fitsWhole } from "../data/requests.js";
import { rangeOf } from "../drawing/colours.js";
import { weightText } from "../drawing/numbers.js";
import { headText, STATISTICS, statisticOf, uniformOf } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import { useComputed } from "../state/signals.js";
import { headName, type Store } from "../state/store.js";
import { MapCanvas } from "./mapCanvas.js";
import { ScaleBar } from "./scaleBar.js";

export function HeadPanel({ overview }: { overview: Overview }) {
  const store = useStore();
  const id = store.headsOf(overview).at(-1)!;
  const map = useComputed(() => currentMap(store, overview));
  const uniform = useMemo(() => uniformOf(overview), [overview]);
  const { weights } = overview.subject;
  const name = weights === "rollout" ? `Rollout through layer ${id[0]}` : headName(id);
  return (
    <aside class="head-panel">
      <h2>{name}</h2>
      {map.value !== null && (
        <MapCanvas weights={map.value} signed={weights === "score"} label={`Map of ${headText(overview, id)}`} />
      )}
      {map.value !== null && <ScaleBar range={rangeOf(map.value, weights === "score")} />}
      <p class="note">Mean over all rows, and what it would be if each row looked at all tokens alike.</p>
      <dl>
        {STATISTICS.slice(0, 7).map(({ name: statistic, title, told }) => (
          <div key={statistic} title={told}>
            <dt>{title}</dt>
            <dd>
              {weightText(statisticOf(overview, statistic, id))}{" "}
              <span class="faint">{weightText(uniform[statistic]!)}</span>
            </dd>
          </div>
        ))}
      </dl>
      <button
        type="button"
        onClick={() => {
          store.fields.view.value = "text";
        }}
      >
        Show in the text
      </button>
    </aside>
  );
}

/** The map of the current head: until its layer is there, the thumbnail. */
function currentMap(store: Store, overview: Overview): Float32Array | null {
  const [layer, head] = store.headsOf(overview).at(-1)!;
  if (fitsWhole(overview.tokens, overview.heads, store.limit.value)) {
    const maps = store.loader.layer(overview.subject, layer).value;
    if (maps.state === "ready") return mapOf(maps.value, head);
  }
  const { thumbnails, subject } = overview;
  return subject.weights === "rollout" ? null : (thumbnails?.row(layer, head) ?? null);
}
