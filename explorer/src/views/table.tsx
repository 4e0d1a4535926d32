/** Every head with its statistics, in the order of any of them: what grid and scatter show, in numbers. */

import type { Statistic } from "../../../client/js/src/index.js";
import { weightText } from "../drawing/numbers.js";
import { allHeads, STATISTICS, sortedHeads, statisticOf } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import { headName, sameHead } from "../state/store.js";
import type { ViewProps } from "./view.js";

export function TableView({ overview }: ViewProps) {
  const store = useStore();
  const { sort } = store.fields;
  const descending = sort.value.startsWith("-");
  const by = STATISTICS.find(({ name }) => name === sort.value.replace(/^-/, ""))?.name ?? null;
  const heads =
    by === null
      ? allHeads(overview)
      : sortedHeads(allHeads(overview), (id) => statisticOf(overview, by, id), descending);
  const chosen = store.heads.value;
  return (
    <>
      <p class="note table-note">
        Means over all rows of the probabilities. Click a title to sort; click a head to open it, Shift-click to add
        it.
      </p>
      <div class="scroll">
        <table class="heads-table">
          <caption class="unseen">Statistics of all heads</caption>
          <thead>
            <tr>
              <th scope="col" aria-sort={by === null ? "ascending" : "none"}>
                <button
                  type="button"
                  class="quiet"
                  onClick={() => {
                    sort.value = "";
                  }}
                >
                  Head
                </button>
              </th>
              {STATISTICS.map(({ name, title, told }) => (
                <SortHeader key={name} name={name} title={title} told={told} by={by} descending={descending} />
              ))}
            </tr>
          </thead>
          <tbody>
            {heads.map((id) => (
              <tr key={headName(id)} class={chosen.some((other) => sameHead(other, id)) ? "chosen" : ""}>
                <th scope="row">
                  <button
                    type="button"
                    class="quiet"
                    aria-pressed={chosen.some((other) => sameHead(other, id))}
                    onClick={({ shiftKey }) => (shiftKey ? store.toggleHead(id) : store.openHead(id))}
                  >
                    {headName(id)}
                  </button>
                </th>
                {STATISTICS.map(({ name }) => (
                  <td class="number" key={name}>
                    {weightText(statisticOf(overview, name, id))}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

interface SortHeaderProps {
  name: Statistic;
  title: string;
  told: string;
  by: Statistic | null;
  descending: boolean;
}

/** The title of a column: the first click puts the largest first. */
function SortHeader({ name, title, told, by, descending }: SortHeaderProps) {
  const { sort } = useStore().fields;
  const order = by !== name ? "none" : descending ? "descending" : "ascending";
  return (
    <th scope="col" class="number" aria-sort={order} title={told}>
      <button
        type="button"
        class="quiet"
        onClick={() => {
          sort.value = order === "descending" ? name : `-${name}`;
        }}
      >
        {title}
        <span aria-hidden="true">{order === "none" ? "" : descending ? " ↓" : " ↑"}</span>
      </button>
    </th>
  );
}
