/** Loads what a flow goes through: mean maps of short inputs at once, of long ones rows layer by layer. */

import type { AttentionOptions } from "../../../../client/js/src/index.js";
import type { Loaded } from "../../data/loader.js";
import { rowAmong } from "../../data/maps.js";
import type { Overview } from "../../data/overview.js";
import { fitsWhole, type Subject } from "../../data/requests.js";
import { type Edge, type Flow, type Shares, stepBack } from "../../drawing/flow.js";
import type { Store } from "../../state/store.js";
import { currentOf } from "./window.js";

/** Mean maps of all layers with at most this many numbers are loaded at once. */
const LARGEST_STACK = 1 << 23;

type Rows = ReadonlyMap<number, Float32Array>;

/** The tokens that a flow begins with: the pinned ones, or the first. */
export function starts(store: Store, overview: Overview): readonly number[] {
  const pinned = store.sourcesIn(overview);
  return pinned.length > 0 ? pinned : overview.kept.slice(0, 1).map(({ position }) => position);
}

/** From the starts after the current layer back to the input. */
export function traced(store: Store, overview: Overview): Loaded<Flow> {
  const [last] = currentOf(store, overview);
  const begin = starts(store, overview).map((position) => overview.indexOf.get(position)!);
  const columns: Shares[] = [new Map(begin.map((index) => [index, 1 / begin.length]))];
  const edges: Edge[] = [];
  const left = new Set(store.fields.sinks.value === "drop" ? sinksOf(overview) : []);
  let carried = 1;
  if (takesStack(store, overview)) askAll(store, overview, last);
  for (let layer = last; layer >= 0; layer--) {
    const after = columns[0]!;
    const rows = meanRows(store, overview, layer, [...after.keys()]);
    if (rows.state !== "ready") return rows;
    const step = stepBack(layer, after, rows.value, store.fields.edges.value, left);
    edges.push(...step.edges);
    columns.unshift(step.before);
    carried *= step.kept;
  }
  return { state: "ready", value: { columns, edges, carried } };
}

/** Where heads look when they have nothing to look at: special tokens, and without those the first. */
function sinksOf({ kept }: Overview): number[] {
  const special = kept.flatMap((unit, i) => (unit.special ? [i] : []));
  return special.length > 0 ? special : [0];
}

/** The rollout of the starts, (N,): their mean. */
export function rolledOut(store: Store, overview: Overview): Loaded<Float32Array> {
  const [layer] = currentOf(store, overview);
  const all = starts(store, overview);
  const mean = new Float32Array(overview.kept.length);
  const subject: Subject = { ...overview.subject, weights: "rollout" };
  let waiting = false;
  for (const position of all) {
    const row = store.loader.row(subject, layer, position, "from").value;
    if (row.state === "failed") return row;
    if (row.state === "loading") waiting = true;
    else
      rowAmong(row.value, 0).forEach((weight, i) => {
        mean[i] = mean[i]! + weight / all.length;
      });
  }
  return waiting ? { state: "loading" } : { state: "ready", value: mean };
}

/** Scores are no shares of anything, and rollout is shown beside the flow. */
function flowSubject({ subject }: Overview): Subject {
  return { ...subject, weights: subject.weights === "value_norm" ? "value_norm" : "probability" };
}

/** The heads whose mean a layer's edges are of: those that are chosen, if the layer has one. */
function headsIn(store: Store, overview: Overview, layer: number): readonly number[] | null {
  if (store.fields.flowHeads.value === "all") return null;
  const own = store
    .headsOf(overview)
    .filter((id) => id[0] === layer)
    .map(([, head]) => head);
  return own.length > 0 ? own : null;
}

function takesStack(store: Store, { tokens, subject }: Overview): boolean {
  const { layers } = subject.model;
  return layers * tokens ** 2 <= LARGEST_STACK && fitsWhole(tokens, layers, store.limit.value);
}

/** The fields of the maps that a layer's rows are in, and the place of the layer among them. */
function fieldsOf(store: Store, overview: Overview, layer: number, last: number): [AttentionOptions, number] {
  const heads = headsIn(store, overview, layer);
  const common = { aggregate: "mean" as const, dtype: "float16" as const };
  if (heads !== null) return [{ ...common, layers: [layer], heads }, 0];
  return [{ ...common, layers: Array.from({ length: last + 1 }, (_, i) => i) }, layer];
}

/** Ask for the maps of all layers before the first of them is there. */
function askAll(store: Store, overview: Overview, last: number): void {
  for (let layer = 0; layer <= last; layer++) {
    store.loader.part(flowSubject(overview), fieldsOf(store, overview, layer, last)[0]).value;
  }
}

function meanRows(store: Store, overview: Overview, layer: number, indices: readonly number[]): Loaded<Rows> {
  const subject = flowSubject(overview);
  const [last] = currentOf(store, overview);
  if (takesStack(store, overview)) {
    const [fields, slot] = fieldsOf(store, overview, layer, last);
    const part = store.loader.part(subject, fields).value;
    if (part.state !== "ready") return part;
    return { state: "ready", value: new Map(indices.map((i) => [i, part.value.attention!.row(slot, i)])) };
  }
  const heads = headsIn(store, overview, layer);
  const part = store.loader.part(subject, {
    layers: [layer],
    ...(heads === null ? {} : { heads }),
    aggregate: "mean",
    queries: indices.map((i) => overview.kept[i]!.position),
    dtype: "float16",
  }).value;
  if (part.state !== "ready") return part;
  return { state: "ready", value: new Map(indices.map((i, at) => [i, part.value.attention!.row(0, at)])) };
}
