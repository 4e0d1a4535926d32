/** All heads in a grid of layers and heads: thumbnails of their maps, or a statistic. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Statistic } from "../../../client/js/src/index.js";
import type { Overview } from "../data/overview.js";
import { highlights } from "../drawing/colours.js";
import { weightText } from "../drawing/numbers.js";
import { headText, limitOf, STATISTICS, type StatisticEntry, statisticOf } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import type { HeadId } from "../state/fields.js";
import { headName, sameHead } from "../state/store.js";
import { HeadPanel } from "./headPanel.js";
import { MapCanvas } from "./mapCanvas.js";
import type { ViewProps } from "./view.js";

export function HeadsView({ overview }: ViewProps) {
  const { cells } = useStore().fields;
  const statistic = STATISTICS.find(({ name }) => name === cells.value) ?? null;
  // Of a long input there are no thumbnails.
  const shown = statistic ?? (overview.thumbnails === null ? STATISTICS[0]! : null);
  return (
    <div class="heads-view">
      <div class="heads-main">
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
            {shown === null ? "Each map has its own range of colours." : `${shown.title}: ${shown.told}.`} Click opens
            a head, Shift-click adds it, a double click leaves it alone.
          </p>
        </div>
        <Grid overview={overview} statistic={shown} />
      </div>
      <HeadPanel overview={overview} />
    </div>
  );
}

function Grid({ overview, statistic }: { overview: Overview; statistic: StatisticEntry | null }) {
  const store = useStore();
  const grid = useRef<HTMLTableElement>(null);
  /** The one cell that the Tab key reaches. */
  const reached = useSignal<HeadId>(store.current.peek());
  const chosen = store.heads.value;
  const move = (event: KeyboardEvent, [layer, head]: HeadId): void => {
    const [down, right] = STEPS[event.key] ?? [0, 0];
    if (down === 0 && right === 0) return;
    event.preventDefault();
    const next = [layer + down, head + right];
    grid.current!.querySelector<HTMLElement>(`[data-head="${next}"]`)?.focus();
  };
  return (
    <div class="scroll">
      <table class="grid" ref={grid} aria-label="Heads, a row for each layer">
        <thead>
          <tr>
            <td />
            {numbers(overview.heads).map((head) => (
              <th scope="col" key={head}>
                H{head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {numbers(overview.layers).map((layer) => (
            <tr key={layer}>
              <th scope="row">L{layer}</th>
              {numbers(overview.heads).map((head) => {
                const id = [layer, head] as const;
                return (
                  <td key={head}>
                    <button
                      type="button"
                      data-head={id}
                      class={statistic === null ? "cell" : "cell value"}
                      aria-pressed={chosen.some((other) => sameHead(other, id))}
                      aria-current={sameHead(store.current.value, id)}
                      aria-label={headText(overview, id)}
                      title={headName(id)}
                      tabIndex={sameHead(reached.value, id) ? 0 : -1}
                      onFocus={() => {
                        reached.value = id;
                      }}
                      onClick={({ shiftKey }) => (shiftKey ? store.toggleHead(id) : store.openHead(id))}
                      onDblClick={() => store.chooseHeads([id])}
                      onKeyDown={(event) => move(event, id)}
                    >
                      {statistic === null ? (
                        <Thumbnail overview={overview} id={id} />
                      ) : (
                        <Value overview={overview} id={id} name={statistic.name} />
                      )}
                    </button>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const STEPS: Record<string, [down: number, right: number]> = {
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1],
};

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

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}
