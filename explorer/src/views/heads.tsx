/** All heads in a grid of layers and heads: thumbnails of their maps, or a statistic. */

import type { Statistic } from "../../../client/js/src/index.js";
import type { Overview } from "../data/overview.js";
import { highlights } from "../drawing/colours.js";
import { weightText } from "../drawing/numbers.js";
import { headText, limitOf, STATISTICS, type StatisticEntry, statisticOf, uniformOf } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import type { HeadId } from "../state/fields.js";
import { HeadGrid } from "./headGrid.js";
import { HeadPanel } from "./headPanel.js";
import { MapCanvas } from "./mapCanvas.js";
import type { ViewProps } from "./view.js";

export function HeadsView({ overview }: ViewProps) {
  const { cells } = useStore().fields;
  const statistic = STATISTICS.find(({ name }) => name === cells.value) ?? null;
  // Of a long input there are no thumbnails.
  const shown = statistic ?? (overview.thumbnails === null ? STATISTICS[0]! : null);
  const uniform = shown === null ? undefined : uniformOf(overview)[shown.name];
  return (
    <div class="heads-view">
      <div>
        <div class="view-tools">
          <label>
            <span>Cells show</span>
            <select
              value={shown?.name ?? "maps"}
              onChange={({ currentTarget }) => {
                cells.value = currentTarget.value;
              }}
            >
              {overview.thumbnails !== null && <option value="maps">maps</option>}
              {STATISTICS.map(({ name, title }) => (
                <option key={name} value={name}>
                  {title.toLowerCase()}
                </option>
              ))}
            </select>
          </label>
          <p class="note">
            {shown === null
              ? "Each map has its own range of colours."
              : `${shown.title}: ${shown.told}${uniform === undefined ? "" : `; ${weightText(uniform)} if all tokens were looked at alike`}.`}{" "}
            Click opens a head, Shift-click adds it, a double click leaves it alone.
          </p>
        </div>
        <Grid overview={overview} statistic={shown} />
      </div>
      <HeadPanel overview={overview} />
    </div>
  );
}

function Grid({ overview, statistic }: { overview: Overview; statistic: StatisticEntry | null }) {
  return (
    <HeadGrid
      overview={overview}
      class={statistic === null ? "cell" : "cell value"}
      label={(id) => headText(overview, id)}
      cell={(id) =>
        statistic === null ? (
          <Thumbnail overview={overview} id={id} />
        ) : (
          <Value overview={overview} id={id} name={statistic.name} />
        )
      }
    />
  );
}

function Thumbnail({ overview, id }: { overview: Overview; id: HeadId }) {
  const weights = overview.thumbnails!.row(...id);
  return <MapCanvas weights={weights} signed={overview.subject.weights === "score"} />;
}

/** A statistic as a number on its colour. */
function Value({ overview, id, name }: { overview: Overview; id: HeadId; name: Statistic }) {
  const store = useStore();
  const value = statisticOf(overview, name, id);
  const inks = highlights(store.fields.colours.value, store.dark.value);
  const share = value / (limitOf(name, overview.kept.length) || 1);
  const { background, ink } = inks[Math.round(Math.min(Math.max(share || 0, 0), 1) * (inks.length - 1))]!;
  return <span style={{ backgroundColor: background, color: ink }}>{weightText(value)}</span>;
}
