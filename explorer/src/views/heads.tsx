/** All heads in a grid of layers and heads: thumbnails of their maps, or a statistic. */

import type { Statistic } from "../../../client/js/src/index.js";
import type { Overview } from "../data/overview.js";
import { weightText } from "../drawing/numbers.js";
import { headText, limitOf, STATISTICS, type StatisticEntry, statisticOf, uniformOf } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import type { HeadId } from "../state/fields.js";
import { EdgeHeads, useEdge } from "./edge.js";
import { HeadGrid } from "./headGrid.js";
import { HeadPanel } from "./headPanel.js";
import { MapCanvas } from "./mapCanvas.js";
import { RatedGrid, ValueCell } from "./ranking.js";
import { ScaleBar } from "./scaleBar.js";
import type { ViewProps } from "./view.js";

export function HeadsView({ overview }: ViewProps) {
  const { cells } = useStore().fields;
  const edge = useEdge(overview);
  const shownEdge = cells.value === "edge" ? edge : null;
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
              value={shownEdge === null ? (shown?.name ?? "maps") : "edge"}
              onChange={({ currentTarget }) => {
                cells.value = currentTarget.value;
              }}
            >
              {edge !== null && <option value="edge">{edge.title}</option>}
              {overview.thumbnails !== null && <option value="maps">maps</option>}
              {STATISTICS.map(({ name, title }) => (
                <option key={name} value={name}>
                  {title.toLowerCase()}
                </option>
              ))}
            </select>
          </label>
          <p class="note">
            {shownEdge !== null
              ? `The weight ${edge!.title} in every head.`
              : shown === null
                ? "Each map has its own range of colours."
                : `${shown.title}: ${shown.told}${uniform === undefined ? "" : `; ${weightText(uniform)} if all tokens were looked at alike`}.`}{" "}
            Click opens a head, Shift-click adds it, a double click leaves it alone.
          </p>
        </div>
        {shownEdge === null ? <Grid overview={overview} statistic={shown} /> : <RatedGrid {...shownEdge} />}
        {shownEdge === null &&
          (shown === null ? (
            <ScaleBar range={["least", "largest of each map"]} />
          ) : (
            <ScaleBar range={[0, limitOf(shown.name, overview.kept.length)]} texts by="linear" />
          ))}
      </div>
      <div>
        <EdgeHeads overview={overview} />
        <HeadPanel overview={overview} />
      </div>
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
  const value = statisticOf(overview, name, id);
  return <ValueCell value={value} share={value / (limitOf(name, overview.kept.length) || 1)} />;
}
