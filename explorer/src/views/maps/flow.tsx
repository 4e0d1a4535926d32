/** Where what a token has become after a layer came from: the strongest edges back to the input, and rollout. */

import { useRef } from "preact/hooks";
import type { Overview } from "../../data/overview.js";
import { type Flow, rowsOf } from "../../drawing/flow.js";
import { largest, weightText } from "../../drawing/numbers.js";
import { Choice } from "../../layout/Controls.js";
import { useStore } from "../../layout/context.js";
import { sentence } from "../../layout/Problems.js";
import { useComputed, useSignalEffect } from "../../state/signals.js";
import type { Store } from "../../state/store.js";
import { placeIn, prepare, useSize } from "../canvas.js";
import { ScaleBar } from "../scaleBar.js";
import type { ViewProps } from "../view.js";
import { drawFlow, HEADER, indexAt, ROW } from "./flowDrawing.js";
import { inksOf } from "./ink.js";
import { rolledOut, starts, traced } from "./trace.js";
import { currentOf } from "./window.js";

/** Of inputs with at most this many tokens, all are shown. */
const MOST_WHOLE = 40;
const SHOWN = 12;
/** What may cover the lower edge of the page. */
const EDGE = 80;
const EMPTY: Flow = { columns: [new Map(), new Map()], edges: [], carried: 0 };

export function FlowView({ overview }: ViewProps) {
  const store = useStore();
  const [frame, size] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const { kept } = overview;
  const loaded = useComputed(() => traced(store, overview));
  const beside = useComputed(() => rolledOut(store, overview));
  const flow = useComputed(() => (loaded.value.state === "ready" ? loaded.value.value : EMPTY));
  const rollout = useComputed(() => (beside.value.state === "ready" ? beside.value.value : null));
  const rows = useComputed(() => rowsOf(flow.value, kept.length, MOST_WHOLE));
  useSignalEffect(() => {
    frame.current!.style.height = `${HEADER + ROW * Math.max(rows.value.length, 6)}px`;
  });
  useSignalEffect(() => {
    if (size.value.width === 0) return;
    store.dark.value;
    const hovered = store.hovered.value;
    const at = hovered === null ? null : (overview.indexOf.get(hovered) ?? null);
    const loadedScene = { flow: flow.value, rows: rows.value, rollout: rollout.value };
    const scene = { size: size.value, kept, at, scale: store.fields.scale.value, ...loadedScene };
    drawFlow(prepare(canvas.current!, size.value), scene, inksOf(canvas.current!));
  });
  const pointed = (event: MouseEvent): number | null => {
    const index = indexAt(rows.peek(), placeIn(canvas.current!, event)[1]);
    return index === null ? null : kept[index]!.position;
  };
  const pin = (position: number, add: boolean): void => {
    store.pin(position, add, false);
    store.spoken.value = `The flow begins at ${namesOf(store, overview)}.`;
  };
  const press = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const all = rows.peek();
    const hovered = store.hovered.peek();
    const row = hovered === null ? -1 : all.indexOf(overview.indexOf.get(hovered)!);
    const next = { ArrowUp: Math.max(row - 1, 0), ArrowDown: row + 1, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined && all.length > 0) {
      const index = all[Math.min(next, all.length - 1)]!;
      store.hovered.value = kept[index]!.position;
      reveal(frame.current!, HEADER + ROW * all.indexOf(index));
      store.spoken.value = told(overview, flow.peek(), rollout.peek(), index);
    } else if ((event.key === "Enter" || event.key === " ") && hovered !== null) pin(hovered, event.shiftKey);
    else return;
    event.preventDefault();
  };
  const failed = [loaded.value, beside.value].find(({ state }) => state === "failed");
  return (
    <div class="maps-view flow-view">
      <div>
        <div class="view-tools">
          <Start overview={overview} />
          <Choice
            label="Edges"
            of={store.fields.flowHeads}
            names={{ all: "mean of all heads", chosen: "mean of chosen heads" }}
          />
          <Choice
            label="Special tokens as sinks"
            of={store.fields.sinks}
            names={{ keep: "followed", drop: "left out" }}
          />
          <Edges />
        </div>
        <p class="note">
          {store.fields.flowHeads.value === "chosen" &&
            "A layer without a chosen head has the mean of all its heads. "}
          Half of each token stays with it, and half goes along its strongest edges; rollout follows all edges.
        </p>
        <div
          class="flow"
          ref={frame}
          role="group"
          tabIndex={0}
          aria-label="Flow. Up and down arrows step through the tokens; Enter begins the flow at one."
          aria-busy={loaded.value.state === "loading"}
          onKeyDown={press}
          onPointerMove={(event) => {
            if (event.pointerType === "mouse") store.hovered.value = pointed(event);
          }}
          onPointerLeave={() => {
            store.hovered.value = null;
          }}
          onBlur={() => {
            store.hovered.value = null;
          }}
          onClick={(event) => {
            const position = pointed(event);
            if (position !== null) pin(position, event.shiftKey);
          }}
        >
          <canvas ref={canvas} role="img" aria-label={summary(store, overview, flow.value)} />
        </div>
        <ScaleBar range={[0, 1]} by="sqrt" faint={0.25} />
        {failed?.state === "failed" && <p class="problem">{sentence(failed.error)}</p>}
      </div>
      <FlowTable overview={overview} flow={flow.value} rollout={rollout.value} />
    </div>
  );
}

/** Chooses where the flow begins, which is a pin; without one it is the first token. */
function Start({ overview }: ViewProps) {
  const store = useStore();
  const chosen = starts(store, overview);
  return (
    <label class="start">
      <span>From token</span>
      <select
        value={chosen.length === 1 ? String(chosen[0]) : ""}
        onChange={({ currentTarget }) => {
          store.fields.pinned.value = [Number(currentTarget.value)];
        }}
      >
        {chosen.length !== 1 && <option value="">{chosen.length} tokens</option>}
        {overview.kept.map(({ position, label }) => (
          <option key={position} value={String(position)}>
            {position} {label}
          </option>
        ))}
      </select>
    </label>
  );
}

function Edges() {
  const { edges } = useStore().fields;
  return (
    <label class="mass">
      <span>{edges.value} edges of each token</span>
      <input
        type="range"
        min="1"
        max="40"
        value={edges.value}
        onInput={({ currentTarget }) => {
          edges.value = Number(currentTarget.value);
        }}
      />
    </label>
  );
}

interface FlowTableProps {
  overview: Overview;
  flow: Flow;
  rollout: Float32Array | null;
}

/** What reaches the input, in numbers. */
function FlowTable({ overview, flow, rollout }: FlowTableProps) {
  const store = useStore();
  const { kept, subject } = overview;
  const shares = flow.columns[0]!;
  const rates = kept.map((_, i) => (shares.get(i) ?? 0) + 1e-6 * (rollout?.[i] ?? 0));
  return (
    <aside class="row-table">
      <table>
        <caption>
          <span>
            Into <strong>{namesOf(store, overview)}</strong>
          </span>
          <span class="faint">after layer {currentOf(store, overview)[0]}, from the input</span>
        </caption>
        <thead>
          <tr>
            <th scope="col" class="number">
              Position
            </th>
            <th scope="col">{subject.level === "word" ? "Word" : "Token"}</th>
            <th scope="col" class="number">
              Flow
            </th>
            <th scope="col" class="number">
              Rollout
            </th>
          </tr>
        </thead>
        <tbody>
          {largest(rates, SHOWN).map((i) => (
            <tr key={i}>
              <td class="number faint">{kept[i]!.position}</td>
              <td class="label">{kept[i]!.label}</td>
              <td class="number">{weightText(shares.get(i) ?? 0)}</td>
              <td class="number">{rollout === null ? "…" : weightText(rollout[i]!)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="note">
        Of the whole weight, the edges shown carry {weightText(flow.carried)} back to the input; Flow is the share of
        that.
      </p>
    </aside>
  );
}

/** Scroll the page to a row that the keyboard leads to, if it is not seen. */
function reveal(frame: HTMLElement, y: number): void {
  const top = frame.getBoundingClientRect().top + y;
  if (top < ROW || top > innerHeight - EDGE) scrollBy({ top: top - innerHeight / 2 });
}

function namesOf(store: Store, overview: Overview): string {
  return starts(store, overview)
    .map((position) => `“${overview.units[position]!.label}”`)
    .join(" + ");
}

/** A token in words. */
function told({ kept }: Overview, { columns }: Flow, rollout: Float32Array | null, index: number): string {
  const beside = rollout === null ? "" : `, rollout ${weightText(rollout[index]!)}`;
  return `${kept[index]!.label} (${kept[index]!.position}): flow ${weightText(columns[0]!.get(index) ?? 0)}${beside}.`;
}

function summary(store: Store, overview: Overview, flow: Flow): string {
  const shares = [...flow.columns[0]!].sort((a, b) => b[1] - a[1]).slice(0, 3);
  const best = shares.map(([index, share]) => `${overview.kept[index]!.label} ${weightText(share)}`);
  const begin = `Flow into ${namesOf(store, overview)} after layer ${currentOf(store, overview)[0]}, back to the input.`;
  return `${begin} ${flow.edges.length} edges. Most comes from ${best.join(", ")}. The table has the numbers.`;
}
