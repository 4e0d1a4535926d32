/** A scatter of all heads by how far and how widely they look. A brush chooses heads in every view. */

import { useMemo, useRef } from "preact/hooks";
import { BROAD, type Kind, MOSTLY, type Specials, STANDS_OUT, specialsOf } from "../drawing/kinds.js";
import { weightText } from "../drawing/numbers.js";
import { type Box, inBox, nearest, neighbour, type Plot, type Point, plotOf, pointsOf } from "../drawing/scatter.js";
import { headText } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import type { HeadId } from "../state/fields.js";
import { useComputed, useSignal } from "../state/signals.js";
import { headName, sameHead } from "../state/store.js";
import { placeIn, prepare, useDrawing, useSize } from "./canvas.js";
import { drawScatter, KIND_LEGEND } from "./scatterDrawing.js";
import { specialMass } from "./specialMass.js";
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
  const special = useComputed(() => specialMass(store, overview)).value;
  const points = useMemo(() => pointsOf(overview, special), [overview, special]);
  const specials = useMemo(() => specialsOf(overview), [overview]);
  // Places do not depend on kinds.
  const plot = useComputed<Plot>(() => plotOf(points, size.value.width, size.value.height));
  const brush = useSignal<Box | null>(null);
  const pointed = useSignal<Point | null>(null);
  useDrawing(
    canvas,
    (current) => {
      if (size.value.width === 0) return;
      // The theme changes colours of the style sheet, which the drawing reads.
      store.dark.value;
      const context = prepare(current, size.value);
      drawScatter(context, plot.value, points, store.heads.value, pointed.value, brush.value);
    },
    [points, plot, size, store, pointed, brush],
  );
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
        <Legend specials={specials} />
        <p class="note">
          Mostly: at least {MOSTLY} of its weight, and {STANDS_OUT} more than if all tokens were looked at alike;
          broad: nothing so, and an entropy of at least {BROAD} of the largest. Size: confidence. Drag a box to choose
          heads.
        </p>
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
      <p class="note told">
        {headText(overview, pointed.value?.id ?? store.current.value)}.{" "}
        {toldDoing(points, specials, pointed.value?.id ?? store.current.value)}
      </p>
    </div>
  );
}

/** What a kind is called. */
function titleOf(kind: Kind, { names }: Specials): string {
  if (kind === "broad" || kind === "other") return kind;
  return `mostly ${kind === "first" ? names[0] : kind === "last" ? names[1] : kind}`;
}

/** What a head does mostly, with its weight there beside that of uniform attention. */
function toldDoing(points: readonly Point[], specials: Specials, id: HeadId): string {
  const point = points.find((one) => sameHead(one.id, id));
  if (point === undefined) return "";
  const { kind, mass, uniform } = point.doing;
  const title = titleOf(kind, specials);
  const named = title[0]!.toUpperCase() + title.slice(1);
  return Number.isNaN(mass) ? `${named}.` : `${named}: ${weightText(mass)}, uniform ${weightText(uniform)}.`;
}

function Legend({ specials }: { specials: Specials }) {
  const shown = KIND_LEGEND.filter(({ kind }) => titleOf(kind, specials) !== "mostly ");
  return (
    <ul class="legend" aria-label="Shapes">
      {shown.map(({ kind, path, colour }) => (
        <li key={kind}>
          <svg viewBox="-7 -7 14 14" width="14" height="14" aria-hidden="true">
            <path d={path} fill={colour} />
          </svg>
          {titleOf(kind, specials)}
        </li>
      ))}
    </ul>
  );
}
