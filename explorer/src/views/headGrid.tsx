/** Tables of buttons: of layers and heads with a button for each head, which opens it. */

import type { ButtonHTMLAttributes, ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Overview } from "../data/overview.js";
import { useStore } from "../layout/context.js";
import { isShifted } from "../layout/keys.js";
import type { HeadId } from "../state/fields.js";
import { useSignal } from "../state/signals.js";
import { headName, sameHead } from "../state/store.js";

interface HeadGridProps {
  readonly overview: Pick<Overview, "layers" | "heads">;
  /** What a button says to screen readers. */
  label(id: HeadId): string;
  /** What stands in a button. */
  cell(id: HeadId): ComponentChildren;
  readonly class: string;
  /** What a click does other than to open a head, and which heads it was done to. */
  readonly switches?: { pressed(id: HeadId): boolean; press(id: HeadId): void };
}

export function HeadGrid({ overview, label, cell, class: look, switches }: HeadGridProps) {
  const store = useStore();
  const chosen = store.heads.value;
  return (
    <Grid
      label="Heads, a row for each layer"
      class={look}
      rows={numbers(overview.layers).map((layer) => `L${layer}`)}
      columns={numbers(overview.heads).map((head) => `H${head}`)}
      first={store.current.peek()}
      cell={(id) => ({
        "data-head": id,
        "aria-pressed": switches ? switches.pressed(id) : chosen.some((other) => sameHead(other, id)),
        "aria-current": switches === undefined && sameHead(store.current.value, id),
        "aria-label": label(id),
        title: headName(id),
        onClick: (event) => {
          if (switches) switches.press(id);
          else if (isShifted(event)) store.toggleHead(id);
          else store.openHead(id);
        },
        onDblClick: () => {
          if (switches === undefined) store.chooseHeads([id]);
        },
        children: cell(id),
      })}
    />
  );
}

interface GridProps {
  readonly label: string;
  readonly class: string;
  readonly rows: readonly string[];
  readonly columns: readonly string[];
  /** The cell that the Tab key reaches, until another has the focus. */
  readonly first: HeadId;
  /** The properties of the button in a row and a column. */
  cell(id: HeadId): ButtonHTMLAttributes & { "data-head"?: HeadId };
  /** Called with the cell under the pointer or with the focus, and with null when it is left. */
  point?(id: HeadId | null): void;
}

/** A table of buttons with names of rows and columns; arrow keys lead from one to the next. */
export function Grid({ label, class: look, rows, columns, first, cell, point }: GridProps) {
  const grid = useRef<HTMLTableElement>(null);
  const reached = useSignal<HeadId>(first);
  const leave = () => point?.(null);
  // Scroll a wide grid to a cell that is chosen elsewhere: the page itself stays where it is.
  const [down, right] = first;
  useEffect(() => {
    const frame = grid.current!.parentElement!;
    const half = frame.clientWidth / 2;
    // While another model is loading, the current head may not be in the grid of the last.
    const cell = grid.current!.rows[down + 1]?.cells[right + 1];
    const left = cell ? cell.offsetLeft - half : frame.scrollLeft;
    if (Math.abs(left - frame.scrollLeft) > half - EDGE) frame.scrollLeft = left;
  }, [down, right]);
  return (
    <div class="scroll">
      <table
        class={look !== "cell" ? "grid wide" : "grid"}
        ref={grid}
        aria-label={label}
        style={{ "--layers": rows.length, "--heads": columns.length }}
        onPointerLeave={leave}
        onFocusOut={leave}
      >
        <thead>
          <tr>
            <td />
            {columns.map((name, column) => (
              <th scope="col" key={column}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((name, row) => (
            <tr key={row}>
              <th scope="row">{name}</th>
              {columns.map((_, column) => {
                const id = [row, column] as const;
                return (
                  <td key={column}>
                    <button
                      type="button"
                      class={look}
                      tabIndex={sameHead(reached.value, id) ? 0 : -1}
                      onPointerOver={() => point?.(id)}
                      onFocus={() => {
                        reached.value = id;
                        point?.(id);
                      }}
                      onKeyDown={(event) => {
                        const [down, right] = arrowed(event, id) ?? [];
                        // The first row and column have the names.
                        if (down !== undefined)
                          grid.current!.rows[down + 1]?.cells[right! + 1]?.querySelector("button")?.focus();
                      }}
                      {...cell(id)}
                    />
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

/** The next row and column in the direction of an arrow key, which is used up; null for other keys. */
export function arrowed(event: KeyboardEvent, [row, column]: readonly [number, number]): [number, number] | null {
  const [down, right] = STEPS[event.key] ?? [];
  if (down === undefined) return null;
  event.preventDefault();
  return [row + down, column + right!];
}

/** Pixels at the sides of a grid that names of rows cover, or that fade. */
const EDGE = 48;

const STEPS: Record<string, [down: number, right: number]> = {
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1],
};

/** From 0 on. */
export function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}
