/** A map of signed numbers, on which a cell is pointed at. */

import type { Signal } from "@preact/signals-core";
import { useRef } from "preact/hooks";
import { useStore } from "../../layout/context.js";
import { within } from "../../state/store.js";
import { placeIn, useDrawing, useSize } from "../canvas.js";
import { arrowed } from "../headGrid.js";
import { type Cell, cellAt, drawSigned, LABELS, type SignedMap } from "./signedDrawing.js";

interface SignedMapProps {
  readonly map: SignedMap;
  readonly at: Signal<Cell>;
  readonly label: string;
  /** What is said of a cell. */
  told(cell: Cell): string;
}

export function SignedMapFrame({ map, at, label, told }: SignedMapProps) {
  const store = useStore();
  const [frame, size] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  useDrawing(
    canvas,
    (current) => {
      if (size.value.width > 0)
        drawSigned(current, map, size.value, at.value, store.dark.value, store.fields.scale.value);
    },
    [map, at, size, store],
  );
  const move = (event: KeyboardEvent): void => {
    const next = arrowed(event, at.value);
    if (next === null) return;
    at.value = [within(next[0], map.rows.length), within(next[1], map.columns.length)];
    store.spoken.value = told(at.value);
  };
  return (
    <>
      <div
        class="difference-map"
        ref={frame}
        // Labels take the room of three cells.
        style={
          map.high
            ? { height: `${LABELS + map.rows.length * map.high}px`, aspectRatio: "auto" }
            : { aspectRatio: `${map.columns.length + 3} / ${map.rows.length + 3}` }
        }
        role="group"
        aria-label={label}
        tabIndex={0}
        onKeyDown={move}
        onPointerMove={(event) => {
          const cell = cellAt(size.value, map, placeIn(event.currentTarget, event));
          if (cell !== null) at.value = cell;
        }}
      >
        <canvas ref={canvas} aria-hidden="true" />
      </div>
      <p class="told">{told(at.value)}</p>
    </>
  );
}
