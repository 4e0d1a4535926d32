/** A scatter of all heads by how far and how widely they look. A brush chooses heads in every view. */

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { type Box, inBox, nearest, neighbour, type Plot, type Point, plotOf, pointsOf } from "../drawing/scatter.js";
import { headText } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import { headName, sameHead } from "../state/store.js";
import { placeIn, prepare, useSize } from "./canvas.js";
import { drawScatter, KIND_LEGEND } from "./scatterDrawing.js";
import type { ViewProps } from "./view.js";

/** A shorter move of the pointer is a click. */
const BRUSH_PIXELS = 4;
const STEPS: Record<string, readonly ["x" | "y", 1 | -1]> = {
  ArrowRight: ["x", 1],
  ArrowLeft: ["x", -1],
  ArrowUp: ["y", 1],
  ArrowDown: ["y", -1],
};

export function FingerprintsView({ overview }: ViewProps) {
  const store = useStore();
  const [frame, size] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const points = useMemo(() => pointsOf(overview), [overview]);
  const plot = useComputed<Plot>(() => plotOf(points, size.value.width, size.value.height));
  const brush = useSignal<Box | null>(null);
  const pointed = useSignal<Point | null>(null);
  useSignalEffect(() => {
    if (size.value.width === 0) return;
    // The theme changes colours of the style sheet, which the drawing reads.
    store.dark.value;
    const context = prepare(canvas.current!, size.value);
    drawScatter(context, plot.value, points, store.heads.value, pointed.value, brush.value);
  });
  const at = (event: PointerEvent | MouseEvent): [number, number] => placeIn(canvas.current!, event);
  const finish = (event: PointerEvent): void => {
    const box = brush.peek();
    brush.value = null;
    if (box === null) return;
    const moved = Math.max(Math.abs(box.x1 - box.x0), Math.abs(box.y1 - box.y0)) > BRUSH_PIXELS;
    if (moved) {
      store.chooseHeads(inBox(plot.peek(), points, box).map(({ id }) => id));
      store.spoken.value = `${store.heads.value.length} heads chosen.`;
      return;
    }
    const point = nearest(plot.peek(), points, at(event));
    if (point !== null) event.shiftKey ? store.toggleHead(point.id) : store.openHead(point.id);
  };
  const step = (event: KeyboardEvent): void => {
    const way = STEPS[event.key];
    if (way === undefined) return;
    event.preventDefault();
    const next = neighbour(points, store.current.value, ...way);
    if (next === null) return;
    if (event.shiftKey) store.chooseHeads([...store.heads.value.filter((id) => !sameHead(id, next.id)), next.id]);
    else store.chooseHeads([next.id]);
    store.spoken.value = headText(overview, next.id);
  };
  return (
    <div class="fingerprints-view">
      <div class="view-tools">
        <Legend />
        <p class="note">Size: confidence. Drag a box to choose heads; arrow keys step from head to head.</p>
      </div>
      <div
        class="scatter"
        ref={frame}
        role="group"
        tabIndex={0}
        aria-label="Heads by distance and entropy. Right and left arrows step by distance, up and down by entropy."
        onKeyDown={step}
        onPointerDown={(event) => {
          const [x, y] = at(event);
          event.currentTarget.setPointerCapture(event.pointerId);
          brush.value = { x0: x, y0: y, x1: x, y1: y };
        }}
        onPointerMove={(event) => {
          const [x, y] = at(event);
          const box = brush.peek();
          if (box !== null) brush.value = { ...box, x1: x, y1: y };
          else pointed.value = nearest(plot.peek(), points, [x, y]);
        }}
        onPointerUp={finish}
        onPointerCancel={() => {
          brush.value = null;
        }}
        onPointerLeave={() => {
          pointed.value = null;
        }}
        onDblClick={(event) => {
          const point = nearest(plot.peek(), points, at(event));
          if (point !== null) store.chooseHeads([point.id]);
        }}
      >
        <canvas
          ref={canvas}
          role="img"
          aria-label={`Scatter of ${points.length} heads; ${store.heads.value.length} chosen, the current one ${headName(store.current.value)}. The table has the numbers.`}
        />
      </div>
      <p class="note told">{headText(overview, pointed.value?.id ?? store.current.value)}</p>
    </div>
  );
}

function Legend() {
  return (
    <ul class="legend" aria-label="Shapes">
      {KIND_LEGEND.map(({ kind, path, colour }) => (
        <li key={kind}>
          <svg viewBox="-7 -7 14 14" width="14" height="14" aria-hidden="true">
            <path d={path} fill={colour} />
          </svg>
          mostly {kind}
        </li>
      ))}
    </ul>
  );
}
