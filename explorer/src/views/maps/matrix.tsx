/** The map of one head, as large as wanted, with labels, margins and the exact weight of each cell. */

import { useEffect, useRef } from "preact/hooks";
import type { Overview } from "../../data/overview.js";
import * as cameras from "../../drawing/camera.js";
import { colourMap } from "../../drawing/colours.js";
import { largestCells } from "../../drawing/margins.js";
import { weightText } from "../../drawing/numbers.js";
import { headText } from "../../drawing/statistics.js";
import { useStore } from "../../layout/context.js";
import { sentence } from "../../layout/Problems.js";
import { useComputed, useSignal, useSignalEffect } from "../../state/signals.js";
import { headName } from "../../state/store.js";
import { prepare, useSize } from "../canvas.js";
import { RowTable } from "../rowTable.js";
import { ScaleBar } from "../scaleBar.js";
import { Directions } from "../text.js";
import type { ViewProps } from "../view.js";
import { FIT, Zoom, zoomKey } from "../zoom.js";
import { followGestures } from "./gestures.js";
import { inksOf } from "./ink.js";
import { drawAbove, drawMatrix, picturesOf, placeOf } from "./matrixDrawing.js";
import {
  type Area,
  currentOf,
  isWhole,
  LARGEST_WINDOW,
  type Shown,
  TILE,
  weightAt,
  wholeMap,
  windowMap,
} from "./window.js";

const FAR = 10;
/** A window is asked for once the map stands still this long. */
const STILL_MS = 120;

export function MatrixView({ overview }: ViewProps) {
  const store = useStore();
  const [frame, canvasSize] = useSize<HTMLDivElement>();
  const below = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const cursor = useRef<HTMLSpanElement>(null);
  const size = overview.kept.length;
  const at = useSignal<cameras.Cell | null>(null);
  /** Null is the whole map, also after the frame has changed. */
  const wanted = useSignal<cameras.Camera | null>(null);
  const area = useSignal<Area | null>(null);
  const shown = useComputed(() =>
    isWhole(store, overview) ? wholeMap(store, overview) : windowMap(store, overview, area.value),
  );
  const place = useComputed(() => placeOf(canvasSize.value, isWhole(store, overview) && !signed(overview)));
  const camera = useComputed(() =>
    wanted.value === null ? cameras.fitted(place.value, size) : cameras.within(wanted.value, place.value, size),
  );
  const pictures = useComputed(() => {
    const { colours, scale } = store.fields;
    return picturesOf(shown.value, colourMap(colours.value, store.dark.value), scale.value);
  });
  useSignalEffect(() => {
    if (canvasSize.value.width === 0) return;
    const context = prepare(below.current!, canvasSize.value);
    drawMatrix(
      context,
      overview,
      shown.value,
      pictures.value,
      place.value,
      camera.value,
      inksOf(below.current!),
      store.fields.scale.value,
    );
  });
  useSignalEffect(() => {
    if (canvasSize.value.width === 0) return;
    store.dark.value;
    const context = prepare(above.current!, canvasSize.value);
    drawAbove(context, overview, size, place.value, camera.value, inksOf(above.current!), {
      pinned: store.sourcesIn(overview),
      edge: store.edgeIn(overview),
      direction: store.fields.direction.value,
      at: at.value,
    });
  });
  useSignalEffect(() => {
    // A finger moves the map where more is to be seen, and else the page.
    const { cell } = camera.value;
    frame.current!.classList.toggle("zoomed", cell > cameras.fittedCell(place.value, size));
  });
  useSignalEffect(() => {
    const next = areaOf(camera.value, place.value, size);
    const timer = setTimeout(() => {
      if (JSON.stringify(area.peek()) !== JSON.stringify(next)) area.value = next;
    }, STILL_MS);
    return () => clearTimeout(timer);
  });
  const point = (cell: cameras.Cell | null): void => {
    if (cell?.row === at.peek()?.row && cell?.column === at.peek()?.column) return;
    at.value = cell;
    const active = cell === null ? null : store.fields.direction.peek() === "from" ? cell.row : cell.column;
    store.hovered.value = active === null ? null : overview.kept[active]!.position;
  };
  const pin = (cell: cameras.Cell, add: boolean): void => {
    const index = store.fields.direction.peek() === "from" ? cell.row : cell.column;
    if (store.edging.peek()) store.pinEdge(overview.kept[cell.row]!.position, overview.kept[cell.column]!.position);
    else store.pin(overview.kept[index]!.position, add);
    const pinned = store.pinned.value.includes(overview.kept[index]!.position);
    store.spoken.value = `${overview.kept[index]!.label} ${pinned ? "pinned" : "no longer pinned"}.`;
  };
  const zoom = (factor: number, px?: number, py?: number): void => {
    const { width, height } = place.peek();
    const cell = at.peek();
    const { cell: side, x, y } = camera.peek();
    const middle =
      cell === null ? [width / 2, height / 2] : [(cell.column + 0.5 - x) * side, (cell.row + 0.5 - y) * side];
    if (factor === FIT) {
      wanted.value = null;
      return;
    }
    const about = [px ?? middle[0]!, py ?? middle[1]!] as const;
    wanted.value = cameras.zoomed(camera.peek(), factor, about, place.peek(), size);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: what it calls reads signals.
  useEffect(() => {
    const cellAt = (x: number, y: number) => {
      const { left, top } = place.peek();
      return cameras.cellAt(camera.peek(), x - left, y - top, place.peek(), size);
    };
    return followGestures(
      frame.current!,
      {
        point: (x, y) => point(cellAt(x, y)),
        drag: (dx, dy) => {
          wanted.value = cameras.moved(camera.peek(), dx, dy, place.peek(), size);
        },
        zoom: (factor, x, y) => zoom(factor, x - place.peek().left, y - place.peek().top),
        click: (x, y, add) => {
          const cell = cellAt(x, y);
          point(cell);
          if (cell !== null) pin(cell, add);
        },
      },
      () => camera.peek().cell > cameras.fittedCell(place.peek(), size),
    );
  }, [overview]);
  /** Scroll the page to the cell that the keyboard leads to. */
  const reveal = ({ row, column }: cameras.Cell): void => {
    const { cell, x, y } = camera.peek();
    const [left, top] = [place.peek().left + (column - x) * cell, place.peek().top + (row - y) * cell];
    Object.assign(cursor.current!.style, { left: `${left}px`, top: `${top}px` });
    cursor.current!.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  const press = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const now = at.peek() ?? { row: Math.floor(camera.peek().y), column: Math.floor(camera.peek().x) };
    const next = stepped(now, event, size, place.peek().height / camera.peek().cell);
    if (next !== null) {
      wanted.value = cameras.revealing(camera.peek(), next, place.peek(), size);
      point(next);
      reveal(next);
      store.spoken.value = told(overview, shown.peek(), next);
    } else if (event.key === "Enter" || event.key === " ") pin(now, event.shiftKey);
    else if (!zoomKey(event.key, zoom)) return;
    event.preventDefault();
  };
  const { error, pieces } = shown.value;
  return (
    <div class="maps-view matrix-view">
      <div>
        <div class="view-tools">
          <Directions />
          <Zoom zoom={zoom} all="The whole map" />
          <p class="note">Rows look at columns. Click pins; drag, wheel and arrow keys move.</p>
        </div>
        <div
          class="matrix"
          ref={frame}
          role="group"
          tabIndex={0}
          aria-label="Matrix. Arrow keys step from cell to cell, with Shift by ten. Plus and minus zoom, 0 shows all, Enter pins."
          aria-busy={pieces.length === 0 && error === null}
          onKeyDown={press}
          onPointerLeave={({ pointerType }) => {
            // A finger leaves when it is lifted: what it chose stays.
            if (pointerType === "mouse") point(null);
          }}
        >
          <canvas ref={below} role="img" aria-label={summary(overview, shown.value, currentOf(store, overview))} />
          <canvas ref={above} aria-hidden="true" />
          <span ref={cursor} class="cursor" />
        </div>
        <ScaleBar range={shown.value.range} />
        <p class="note told">
          {at.value === null ? nameOf(overview, currentOf(store, overview)) : told(overview, shown.value, at.value)}
        </p>
        {error !== null && <p class="problem">{sentence(error)}</p>}
      </div>
      <RowTable overview={overview} store={store} />
    </div>
  );
}

function signed({ subject }: Overview): boolean {
  return subject.weights === "score";
}

/** The window that is looked at; null while more is seen than is worth loading. */
function areaOf(camera: cameras.Camera, frame: cameras.Frame, size: number): Area | null {
  const rows = cameras.tiled(cameras.seen(camera.y, frame.height, camera.cell, size), TILE, size);
  const columns = cameras.tiled(cameras.seen(camera.x, frame.width, camera.cell, size), TILE, size);
  return Math.max(rows[1] - rows[0], columns[1] - columns[0]) <= LARGEST_WINDOW ? { rows, columns } : null;
}

/** The cell that a key leads to; null for other keys. */
function stepped(
  { row, column }: cameras.Cell,
  { key, shiftKey }: KeyboardEvent,
  size: number,
  page: number,
): cameras.Cell | null {
  const step = shiftKey ? FAR : 1;
  const rows: Record<string, number> = { ArrowUp: -step, ArrowDown: step, PageUp: -page, PageDown: page };
  const columns: Record<string, number> = { ArrowLeft: -step, ArrowRight: step, Home: -size, End: size };
  if (!(key in rows) && !(key in columns)) return null;
  const near = (index: number) => Math.min(Math.max(Math.round(index), 0), size - 1);
  return { row: near(row + (rows[key] ?? 0)), column: near(column + (columns[key] ?? 0)) };
}

function nameOf({ subject }: Overview, id: readonly [number, number]): string {
  return subject.weights === "rollout" ? `Rollout through layer ${id[0]}.` : `${headName(id)}.`;
}

/** A cell in words, with its exact weight. */
function told({ kept }: Overview, shown: Shown, { row, column }: cameras.Cell): string {
  const weight = weightAt(shown, row, column);
  const name = (index: number) => `${kept[index]!.label} (${kept[index]!.position})`;
  const { margins } = shown;
  const beside =
    margins === null
      ? ""
      : ` Row entropy ${weightText(margins.entropy[row]!)}, column receives ${weightText(margins.received[column]!)}.`;
  const exact = weight === null ? "zoom in for the weight" : weightText(weight);
  return `${name(row)} → ${name(column)}: ${exact}.${beside}`;
}

function summary(overview: Overview, shown: Shown, id: readonly [number, number]): string {
  const { kept, subject } = overview;
  const what = subject.weights === "rollout" ? nameOf(overview, id) : `${headText(overview, id)}.`;
  const begin = `Map of ${shown.size} rows and columns. ${what}`;
  const first = shown.pieces[0];
  if (!shown.whole || first === undefined) return begin;
  const best = largestCells(first.weights, shown.size, 3).map(
    ({ row, column }) =>
      `${kept[row]!.label} to ${kept[column]!.label} ${weightText(first.weights[row * shown.size + column]!)}`,
  );
  return `${begin} Largest weights: ${best.join(", ")}.`;
}
