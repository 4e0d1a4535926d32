/** A number of every head: in a grid, and those with most of it in a list. */

import type { Overview } from "../data/overview.js";
import { highlights } from "../drawing/colours.js";
import { weightText } from "../drawing/numbers.js";
import { allHeads, sortedHeads } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import type { HeadId } from "../state/fields.js";
import { headName, type Store, sameHead } from "../state/store.js";
import { HeadGrid } from "./headGrid.js";
import { ScaleBar } from "./scaleBar.js";

const SHOWN = 10;

export interface Rated {
  readonly overview: Pick<Overview, "layers" | "heads">;
  /** NaN where it is not known. */
  rate(id: HeadId): number;
  /** What the number is. */
  readonly title: string;
  /** Whether the least comes first. */
  readonly ascending?: boolean;
}

/** The grid, coloured by the number, of which the largest has the last colour. */
export function RatedGrid({ overview, rate, title, ascending = false }: Rated) {
  const all = allHeads(overview);
  const order = sortedHeads(all, rate, !ascending);
  const most = Math.max(0, ...all.map(rate).filter(Number.isFinite));
  const rank = (id: HeadId) => order.findIndex((other) => sameHead(other, id)) + 1;
  return (
    <div>
      <HeadGrid
        overview={overview}
        class="cell value"
        label={(id) => `${headName(id)}: ${title} ${weightText(rate(id))}, rank ${rank(id)} of ${order.length}`}
        cell={(id) => <ValueCell value={rate(id)} share={rate(id) / most} />}
      />
      <ScaleBar range={[0, most]} texts by="linear" />
    </div>
  );
}

/** A number on its colour. */
export function ValueCell({ value, share }: { value: number; share: number }) {
  return <span style={colouredBy(useStore(), share)}>{weightText(value)}</span>;
}

/** The ground and the ink of a share from 0 to 1. */
export function colouredBy({ fields, dark }: Store, share: number) {
  const inks = highlights(fields.colours.value, dark.value);
  const { background, ink } = inks[Math.round(Math.min(Math.max(share || 0, 0), 1) * (inks.length - 1))]!;
  return { backgroundColor: background, color: ink };
}

/** The heads with most of it, or least; a click opens one. */
export function RankedHeads({ overview, rate, title, ascending = false }: Rated) {
  const store = useStore();
  const chosen = store.heads.value;
  const rows = sortedHeads(allHeads(overview), rate, !ascending).map((id, i) => ({
    number: i + 1,
    name: headName(id),
    value: rate(id),
    pressed: chosen.some((other) => sameHead(other, id)),
    open: ({ shiftKey }: MouseEvent) => (shiftKey ? store.toggleHead(id) : store.openHead(id)),
  }));
  return <Ranked title={`${ascending ? "Least" : "Most"} ${title}`} rows={rows} />;
}

interface RankedRow {
  readonly number: number;
  readonly name: string;
  readonly value: number;
  readonly pressed?: boolean;
  readonly open: (event: MouseEvent) => void;
}

/** The first of some rows, each with a button. */
export function Ranked({ title, rows }: { title: string; rows: readonly RankedRow[] }) {
  return (
    <table class="ranked">
      <caption>{title}</caption>
      <tbody>
        {rows.slice(0, SHOWN).map(({ number, name, value, pressed, open }) => (
          <tr key={number}>
            <td class="number faint">{number}</td>
            <th scope="row">
              <button type="button" class="quiet" aria-pressed={pressed} onClick={open}>
                {name}
              </button>
            </th>
            <td class="number">{weightText(value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
