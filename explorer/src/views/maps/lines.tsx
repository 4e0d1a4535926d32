/** Lines between two columns of tokens, in a hue for each of the chosen heads. */

import type { ReadonlySignal } from "@preact/signals-core";
import { useRef } from "preact/hooks";
import { isIn, onlyBlock } from "../../data/blocks.js";
import { mapOf } from "../../data/maps.js";
import type { Overview } from "../../data/overview.js";
import { headRow } from "../../data/weights.js";
import { cssOf, hueOf, MOST_HUES } from "../../drawing/hues.js";
import { type Lines, linesOf } from "../../drawing/lines.js";
import { countText, largest, weightText } from "../../drawing/numbers.js";
import { Choice } from "../../layout/Controls.js";
import { useStore } from "../../layout/context.js";
import { sentence } from "../../layout/Problems.js";
import type { HeadId } from "../../state/fields.js";
import { useComputed, useSignal, useSignalEffect } from "../../state/signals.js";
import type { Store } from "../../state/store.js";
import { placeIn, prepare, useSize } from "../canvas.js";
import { BLOCK_TITLES } from "../pairs/pairs.js";
import { RowTable } from "../rowTable.js";
import { ScaleBar } from "../scaleBar.js";
import { Directions } from "../text.js";
import type { ViewProps } from "../view.js";
import { Zoom, zoomKey } from "../zoom.js";
import { inksOf } from "./ink.js";
import {
  columnsOf,
  drawLines,
  type HeadLines,
  imageOf,
  nameOf,
  type Own,
  ownLines,
  type Scene,
} from "./linesDrawing.js";
import { isWhole } from "./window.js";

const ROW = 20;
/** From this height of rows on, all rows are shown without scrolling. */
const LEAST_READABLE = 15;
const LARGEST_ROW = 40;
const FAR = 10;
/** An image that takes longer than this is not drawn for each step of a scroll, but after it. */
const SLOW_MS = 12;
const PAUSE_MS = 80;
const NO_LINES: Lines = { starts: new Uint32Array(1), keys: new Uint32Array(), weights: new Float32Array() };

interface Chosen {
  readonly id: HeadId;
  readonly name: string;
}

interface AllLines {
  readonly heads: readonly Lines[];
  readonly loading: boolean;
  readonly error: Error | null;
}

export function LinesView({ overview }: ViewProps) {
  const store = useStore();
  const [frame, size] = useSize<HTMLDivElement>();
  const spacer = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const count = overview.kept.length;
  /** Null is a good height to read at. */
  const wanted = useSignal<number | null>(null);
  const scrolled = useSignal(0);
  const chosen = useComputed(() => chosenHeads(store, overview));
  const all = useComputed(() => allLines(store, overview, chosen.value));
  const own = useComputed(() => activeRows(store, overview, chosen.value));
  const row = useComputed(() => {
    const { top } = columnsOf({ size: size.value, heads: 0, direction: "from" });
    const fitting = (size.value.height - top) / Math.max(count, 1);
    const row = wanted.value ?? (fitting < LEAST_READABLE ? ROW : Math.min(fitting, ROW));
    return Math.min(Math.max(row, Math.min(fitting, ROW), 0.25), LARGEST_ROW);
  });
  const scene = useComputed<Scene>(() => ({
    size: size.value,
    row: row.value,
    offset: scrolled.value,
    heads: chosen.value.length,
    direction: store.fields.direction.value,
  }));
  /** What the image of the lines shows: where drawing it takes long, it follows a scroll when that ends. */
  const settled = useSignal<Scene>(scene.peek());
  const cost = useRef(0);
  const image = useComputed(() => {
    const began = performance.now();
    const layers = coloured(chosen.value, all.value.heads, store.dark.value);
    const drawn = imageOf(layers, settled.value);
    cost.current = performance.now() - began;
    return drawn;
  });
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useSignalEffect(() => {
    const next = scene.value;
    if (cost.current < SLOW_MS) {
      settled.value = next;
      return;
    }
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      settled.value = next;
    }, PAUSE_MS);
  });
  useSignalEffect(() => {
    const { top } = columnsOf(scene.value);
    spacer.current!.style.height = `${Math.max(size.value.height, top + count * row.value)}px`;
    // Few tokens need less room than there is.
    frame.current!.style.maxHeight = `${top + count * ROW}px`;
  });
  useSignalEffect(() => {
    const { value } = scene;
    if (value.size.width === 0) return;
    const inks = inksOf(canvas.current!);
    const active = own.value;
    const lines = active.length > 0 ? linesOfTokens(store, count, chosen.value, active) : all.value.heads;
    const layers = coloured(chosen.value, lines, store.dark.value);
    const shown = active.length > 0 || image.value === null ? null : { image: image.value, scene: settled.value };
    drawLines(prepare(canvas.current!, value.size), overview.kept, value, layers, shown, active, inks);
  });
  useSignalEffect(() => {
    // A pin may come from another view.
    const index = overview.indexOf.get(store.pinnedIn(overview).at(-1) ?? -1);
    if (index === undefined || size.value.height === 0) return;
    reveal(frame.current!, index * row.value, row.value, columnsOf(scene.peek()).top);
  });
  const indexAt = (event: MouseEvent): number | null => {
    const [, y] = placeIn(canvas.current!, event);
    const { top } = columnsOf(scene.peek());
    const index = Math.floor((y - top + scrolled.peek()) / row.peek());
    return y >= top && index >= 0 && index < count ? index : null;
  };
  const pin = (position: number, add: boolean): void => {
    store.pin(position, add);
    store.spoken.value = told(store, overview, chosen.peek(), position);
  };
  const zoom = (factor: number): void => {
    const middle = (scrolled.peek() + size.peek().height / 2) / row.peek();
    wanted.value = factor === 0 ? 0 : row.peek() * factor;
    requestAnimationFrame(() => {
      frame.current?.scrollTo({ top: middle * row.peek() - size.peek().height / 2 });
    });
  };
  const press = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? FAR : 1;
    const steps: Record<string, number> = { ArrowUp: -step, ArrowDown: step, Home: -count, End: count };
    const hovered = store.hovered.peek();
    const index = hovered === null ? -1 : (overview.indexOf.get(hovered) ?? -1);
    if (event.key in steps) {
      const next = Math.min(Math.max(index + steps[event.key]!, 0), count - 1);
      const { position } = overview.kept[next]!;
      store.hovered.value = position;
      reveal(frame.current!, next * row.peek(), row.peek(), columnsOf(scene.peek()).top);
      store.spoken.value = told(store, overview, chosen.peek(), position);
    } else if ((event.key === "Enter" || event.key === " ") && hovered !== null) pin(hovered, event.shiftKey);
    else if (!zoomKey(event.key, zoom)) return;
    event.preventDefault();
  };
  const { error, loading } = all.value;
  const hue = cssOf(hueOf(chosen.value.length - 1, store.dark.value));
  return (
    <div class="maps-view lines-view">
      <div>
        <div class="view-tools">
          <Directions />
          <Mass />
          {overview.subject.pair !== null && (
            <Choice label="Lines lead" of={store.fields.linesOf} names={{ all: "all", ...BLOCK_TITLES }} />
          )}
          <Zoom zoom={zoom} all="All tokens" />
        </div>
        <Legend store={store} chosen={chosen} all={all} whole={isWhole(store, overview)} />
        <div
          class="lines"
          ref={frame}
          role="group"
          tabIndex={0}
          aria-label="Lines between tokens. Up and down arrows step through the tokens, with Shift by ten. Plus and minus zoom, 0 shows all, Enter pins."
          aria-busy={loading}
          onKeyDown={press}
          onScroll={({ currentTarget }) => {
            scrolled.value = currentTarget.scrollTop;
          }}
          onPointerMove={(event) => {
            if (event.pointerType !== "mouse") return;
            const index = indexAt(event);
            store.hovered.value = index === null ? null : overview.kept[index]!.position;
          }}
          onPointerLeave={() => {
            store.hovered.value = null;
          }}
          onBlur={() => {
            store.hovered.value = null;
          }}
          onClick={(event) => {
            const index = indexAt(event);
            if (index !== null) pin(overview.kept[index]!.position, event.shiftKey);
          }}
        >
          <div ref={spacer}>
            <canvas ref={canvas} role="img" aria-label={summary(store, overview, chosen.value, all.value)} />
          </div>
        </div>
        <ScaleBar key={hue} range={[0, 1]} by="sqrt" faint={0} ink={hue} />
        {error !== null && <p class="problem">{sentence(error)}</p>}
      </div>
      <RowTable overview={overview} store={store} />
    </div>
  );
}

/** The share of a row's mass that its lines have. */
function Mass() {
  const { mass } = useStore().fields;
  return (
    <label class="mass">
      <span>Mass of a row {Math.round(100 * mass.value)} %</span>
      <input
        type="range"
        min="0.05"
        max="1"
        step="0.05"
        value={mass.value}
        aria-valuetext={`${Math.round(100 * mass.value)} %`}
        onInput={({ currentTarget }) => {
          mass.value = Number(currentTarget.value);
        }}
      />
    </label>
  );
}

interface LegendProps {
  store: Store;
  chosen: ReadonlySignal<readonly Chosen[]>;
  all: ReadonlySignal<AllLines>;
  whole: boolean;
}

function Legend({ store, chosen, all, whole }: LegendProps) {
  const left = store.heads.value.length - chosen.value.length;
  const rollout = store.fields.weights.value === "rollout";
  return (
    <div class="lines-legend">
      <ul class="legend" aria-label="Heads">
        {chosen.value.map(({ name }, i) => (
          <li key={name}>
            <svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">
              <rect y="2" width="14" height="10" fill={cssOf(hueOf(i, store.dark.value))} />
            </svg>
            {name}
            {whole && <span class="faint">{countText(all.value.heads[i]!.keys.length, "line")}</span>}
          </li>
        ))}
      </ul>
      <p class="note">
        {store.fields.weights.value === "score" && "Scores are no shares: lines count those above 0. "}
        {!whole && "This input is long: pin a token to see its lines. "}
        {left > 0 && !rollout && `${left} further chosen heads have no lines here: at most ${MOST_HUES} do. `}
      </p>
    </div>
  );
}

/** The heads that have lines: the chosen ones, the current one last, as many as there are hues. */
function chosenHeads(store: Store, overview: Overview): Chosen[] {
  const rollout = overview.subject.weights === "rollout";
  const ids = store.headsOf(overview).slice(rollout ? -1 : -MOST_HUES);
  return ids.map((id) => ({ id, name: nameOf(id, rollout) }));
}

function coloured(chosen: readonly Chosen[], lines: readonly Lines[], dark: boolean): HeadLines[] {
  return chosen.map((head, i) => ({ ...head, lines: lines[i]!, colour: hueOf(i, dark) }));
}

/** The lines of each head; none while its layer is loading, or of a long input. */
function allLines(store: Store, overview: Overview, chosen: readonly Chosen[]): AllLines {
  if (!isWhole(store, overview)) return { heads: chosen.map(() => NO_LINES), loading: false, error: null };
  const mass = store.fields.mass.value;
  const block = blockIn(store, overview);
  const filtered = (map: Float32Array) => (block === "all" ? map : onlyBlock(map, overview.kept, block));
  let loading = false;
  let error: Error | null = null;
  const heads = chosen.map(({ id: [layer, head] }) => {
    const maps = store.loader.layer(overview.subject, layer).value;
    if (maps.state === "ready") return linesOf(filtered(mapOf(maps.value, head)), maps.value.size, mass);
    loading ||= maps.state === "loading";
    if (maps.state === "failed") error = maps.error;
    return NO_LINES;
  });
  return { heads, loading, error };
}

/** The weights of the pinned tokens, and of the one that is pointed at: in a long input only of those pinned. */
function activeRows(store: Store, overview: Overview, chosen: readonly Chosen[]): Own[] {
  const whole = isWhole(store, overview);
  const hovered = store.hovered.value;
  const pinned = store.sourcesIn(overview);
  const pointed = hovered !== null && whole && overview.indexOf.has(hovered) ? [hovered] : [];
  const positions = pinned.length > 0 ? pinned : pointed;
  const direction = store.fields.direction.value;
  return positions.map((position) => ({
    position,
    index: overview.indexOf.get(position)!,
    weights: chosen.map(({ id: [layer, head] }) => {
      const loaded = headRow(store.loader, overview, layer, head, position, { direction, whole, rows: true });
      return loaded.state === "ready" ? filteredRow(store, overview, loaded.value, position) : null;
    }),
  }));
}

/** The texts between which lines lead: of a single text there are none to choose. */
function blockIn({ fields }: Store, { subject }: Overview) {
  return subject.pair === null ? "all" : fields.linesOf.value;
}

/** The weights of a token that lines have: they lead from one text, or into one. */
function filteredRow(store: Store, overview: Overview, weights: Float32Array, position: number): Float32Array {
  const block = blockIn(store, overview);
  if (block === "all") return weights;
  const { kept, indexOf } = overview;
  const own = kept[indexOf.get(position)!]!;
  const to = store.fields.direction.value === "to";
  return weights.map((weight, i) => ((to ? isIn(block, kept[i]!, own) : isIn(block, own, kept[i]!)) ? weight : 0));
}

function linesOfTokens(store: Store, count: number, chosen: readonly Chosen[], own: readonly Own[]): Lines[] {
  const mass = store.fields.mass.value;
  const to = store.fields.direction.value === "to";
  const lines = ownLines(own, count, (weights) => linesOf(weights, weights.length, mass));
  return chosen.map((_, head) => lines(head, to));
}

function reveal(frame: HTMLElement, y: number, height: number, top: number): void {
  const last = y + height + top - frame.clientHeight;
  if (frame.scrollTop > y) frame.scrollTop = y;
  else if (frame.scrollTop < last) frame.scrollTop = last;
}

/** A token and its largest weights in each head, in words. */
function told(store: Store, overview: Overview, chosen: readonly Chosen[], position: number): string {
  const unit = overview.units[position]!;
  const pinned = store.pinned.peek().includes(position) ? ", pinned" : "";
  const own = activeRows(store, overview, chosen).find((one) => one.position === position);
  const parts = chosen.map(({ name }, head) => {
    const weights = own?.weights[head];
    if (!weights) return "";
    const best = largest(weights, 3).map((i) => `${overview.kept[i]!.label} ${weightText(weights[i]!)}`);
    return ` ${name}: ${best.join(", ")}.`;
  });
  return `${unit.label} (${position})${pinned}.${parts.join("")}`;
}

function summary(store: Store, overview: Overview, chosen: readonly Chosen[], { heads }: AllLines): string {
  const counts = chosen.map(({ name }, i) => `${name} ${countText(heads[i]!.keys.length, "line")}`);
  const share = `${Math.round(100 * store.fields.mass.value)} % of each row's mass`;
  const whole = isWhole(store, overview) ? `${counts.join(", ")} have ${share}.` : "";
  const pinned = store.sourcesIn(overview).map((position) => overview.units[position]!.label);
  const only = pinned.length > 0 ? ` Only the lines of ${pinned.join(", ")} are drawn.` : "";
  return `Lines between ${countText(overview.kept.length, "token")}. ${whole}${only} The table has the weights.`;
}
