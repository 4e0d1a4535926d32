/** A table of layers and heads with a button for each head, which opens it. */

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
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
  const grid = useRef<HTMLTableElement>(null);
  /** The one cell that the Tab key reaches. */
  const reached = useSignal<HeadId>(store.current.peek());
  const chosen = store.heads.value;
  const move = (event: KeyboardEvent, id: HeadId): void => {
    const next = arrowed(event, id);
    grid.current!.querySelector<HTMLElement>(`[data-head="${next}"]`)?.focus();
  };
  return (
    <div class="scroll">
      <table
        class={look !== "cell" ? "grid wide" : "grid"}
        ref={grid}
        aria-label="Heads, a row for each layer"
        style={{ "--layers": overview.layers, "--heads": overview.heads }}
      >
        <thead>
          <tr>
            <td />
            {numbers(overview.heads).map((head) => (
              <th scope="col" key={head}>
                {`H${head}`}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {numbers(overview.layers).map((layer) => (
            <tr key={layer}>
              <th scope="row">{`L${layer}`}</th>
              {numbers(overview.heads).map((head) => {
                const id = [layer, head] as const;
                return (
                  <td key={head}>
                    <button
                      type="button"
                      data-head={id}
                      class={look}
                      aria-pressed={switches ? switches.pressed(id) : chosen.some((other) => sameHead(other, id))}
                      aria-current={switches === undefined && sameHead(store.current.value, id)}
                      aria-label={label(id)}
                      title={headName(id)}
                      tabIndex={sameHead(reached.value, id) ? 0 : -1}
                      onFocus={() => {
                        reached.value = id;
                      }}
                      onClick={(event) => {
                        if (switches) switches.press(id);
                        else if (isShifted(event)) store.toggleHead(id);
                        else store.openHead(id);
                      }}
                      onDblClick={() => {
                        if (switches === undefined) store.chooseHeads([id]);
                      }}
                      onKeyDown={(event) => move(event, id)}
                    >
                      {cell(id)}
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

/** The next row and column in the direction of an arrow key, which is used up; null for other keys. */
export function arrowed(event: KeyboardEvent, [row, column]: readonly [number, number]): [number, number] | null {
  const [down, right] = STEPS[event.key] ?? [];
  if (down === undefined) return null;
  event.preventDefault();
  return [row + down, column + right!];
}

const STEPS: Record<string, [down: number, right: number]> = {
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1],
};

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}
