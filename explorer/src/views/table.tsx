/** Every head with its statistics, in the order of any of them: what grid and scatter show, in numbers. */

import { BLOCKS } from "../data/blocks.js";
import type { Overview } from "../data/overview.js";
import { weightText } from "../drawing/numbers.js";
import { allHeads, STATISTICS, sortedHeads, statisticOf } from "../drawing/statistics.js";
import { csvOf } from "../export/csv.js";
import { saveFile } from "../export/save.js";
import { useStore } from "../layout/context.js";
import { isShifted } from "../layout/keys.js";
import type { HeadId } from "../state/fields.js";
import { headName, type Store, sameHead } from "../state/store.js";
import { useEdge } from "./edge.js";
import { BLOCK_TITLES } from "./pairs/pairs.js";
import { blockOf, useBlocks } from "./pairs/useBlocks.js";
import type { Rated } from "./ranking.js";
import { SimilarityTable } from "./similarities.js";
import type { ViewProps } from "./view.js";

export function TableView({ overview }: ViewProps) {
  const columns = useColumns(overview);
  return (
    <>
      <SimilarityTable overview={overview} />
      <p class="note table-note">
        Means over all rows of the probabilities. Click a title to sort; click a head to open it, Shift-click to add
        it.
      </p>
      <HeadsTable overview={overview} columns={columns} />
    </>
  );
}

interface HeadsTableProps {
  readonly overview: Rated["overview"];
  readonly columns: readonly Column[];
}

/** A row for each head, in the order of a column. */
export function HeadsTable({ overview, columns }: HeadsTableProps) {
  const store = useStore();
  const { sort } = store.fields;
  const [by, descending] = orderOf(store, columns);
  const heads = by === undefined ? allHeads(overview) : sortedHeads(allHeads(overview), by.rate, descending);
  const chosen = store.heads.value;
  return (
    <>
      <div class="view-tools">
        <button type="button" onClick={() => saveFile(tableOf(columns, heads), "headlight-heads.csv")}>
          Save as CSV
        </button>
      </div>
      <div class="scroll">
        <table class="heads-table">
          <caption class="unseen">Statistics of all heads</caption>
          <thead>
            <tr>
              <th scope="col" aria-sort={by ? "none" : "ascending"}>
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
              {columns.map((column) => (
                <SortHeader key={column.name} column={column} by={by} descending={descending} />
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
                    onClick={(event) => (isShifted(event) ? store.toggleHead(id) : store.openHead(id))}
                  >
                    {headName(id)}
                  </button>
                </th>
                {columns.map(({ name, rate, spread }) => (
                  <td class="number" key={name}>
                    {weightText(rate(id))}
                    {spread && <span class="faint"> ±{weightText(spread(id))}</span>}
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

/** The column that heads are sorted by, if there is one, and whether the largest is first. */
export function orderOf<T extends Column>(
  { fields: { sort } }: Store,
  columns: readonly T[],
): [T | undefined, boolean] {
  const name = sort.value.replace("-", "");
  return [columns.find((column) => column.name === name), name !== sort.value];
}

/** The table in the order that it is shown in, with all digits. */
function tableOf(columns: readonly Column[], heads: readonly HeadId[]): Blob {
  const all = columns.flatMap(({ spread, ...column }) =>
    spread ? [column, { ...column, name: `${column.name}_deviation`, rate: spread }] : column,
  );
  const rows = heads.map((id) => [...id, ...all.map(({ rate }) => rate(id))]);
  const titles = all.map(({ name, title }) => (name === "edge" ? title : name));
  return new Blob([csvOf([["layer", "head", ...titles], ...rows])], { type: "text/csv" });
}

export interface Column {
  readonly name: string;
  readonly title: string;
  readonly told: string;
  readonly rate: (id: HeadId) => number;
  /** How much it differs from text to text. */
  readonly spread?: (id: HeadId) => number;
}

/** The statistics, and of a pair its blocks. */
function useColumns(overview: Overview): readonly Column[] {
  const edge = useEdge(overview);
  const blocks = useBlocks(overview).value;
  const statistics: Column[] = STATISTICS.map((entry) => ({
    ...entry,
    rate: (id: HeadId) => statisticOf(overview, entry.name, id),
  }));
  if (edge !== null) statistics.unshift({ ...edge, name: "edge", told: "the weight of the pinned edge" });
  if (typeof blocks.problem === "string") return statistics;
  const own = BLOCKS.map((name) => ({
    name,
    title: BLOCK_TITLES[name],
    told: "mean mass from the tokens of a text to those of a text, A the first and B the second",
    rate: (id: HeadId) => blockOf(blocks, name, id),
  }));
  return [...statistics, ...own];
}

interface SortHeaderProps {
  column: Column;
  by: Column | undefined;
  descending: boolean;
}

/** The title of a column: the first click puts the largest first. */
function SortHeader({ column: { name, title, told }, by, descending }: SortHeaderProps) {
  const { sort } = useStore().fields;
  const order = by?.name !== name ? "none" : descending ? "descending" : "ascending";
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
