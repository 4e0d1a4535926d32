/** The map of the second head minus that of the first, in the rows and columns that stand for each other. */

import type { ReadonlySignal } from "@preact/signals-core";
import { useMemo } from "preact/hooks";
import type { Loaded, Loader } from "../../data/loader.js";
import { mapOf } from "../../data/maps.js";
import type { Overview } from "../../data/overview.js";
import { cut, minus } from "../../drawing/difference.js";
import { largestSize } from "../../drawing/diverging.js";
import { largest, signedText, weightText } from "../../drawing/numbers.js";
import { StoreContext, useStore } from "../../layout/context.js";
import { sentence } from "../../layout/Problems.js";
import type { HeadId } from "../../state/fields.js";
import { useComputed, useSignal } from "../../state/signals.js";
import type { Store } from "../../state/store.js";
import type { Cell } from "../maps/signedDrawing.js";
import { SignedMapFrame } from "../maps/signedMap.js";
import { RankedHeads, type Rated, RatedGrid } from "../ranking.js";
import { Directions } from "../text.js";
import { ColourBar } from "../why/colourBar.js";
import { UnitText } from "../why/unitText.js";
import { type Both, type Distances, distanceOf, isDone, namedHead, withoutDifference } from "./distances.js";

interface DifferenceProps {
  readonly both: Both;
  readonly other: Store;
  readonly distances: ReadonlySignal<Distances>;
}

/** Of a head of either input, (P, P) and (P, P + 1). */
interface Difference {
  readonly size: number;
  readonly first: Float32Array;
  readonly second: Float32Array;
  /** second − first */
  readonly values: Float32Array;
}

const SHOWN = 10;
/** Tokens without a counterpart that are named. */
const NAMED = 8;

export function DifferenceView({ both, other, distances }: DifferenceProps) {
  const store = useStore();
  const found = useComputed(() => differenceOf(store, other, both));
  const why = withoutDifference(both, store.limit.value);
  if (why !== null) return <p class="note">{why}</p>;
  const loaded = found.value;
  return (
    <div class="difference-view">
      {loaded.state === "failed" && <p class="problem">{sentence(loaded.error)}</p>}
      {loaded.state === "loading" && <p class="note">Loading…</p>}
      {loaded.state === "ready" && <Shown difference={loaded.value} both={both} other={other} />}
      <AllHeads both={both} other={other} distances={distances} />
    </div>
  );
}

interface ShownProps {
  readonly difference: Difference;
  readonly both: Both;
  readonly other: Store;
}

function Shown({ difference, both: { first, second, aligned }, other }: ShownProps) {
  const store = useStore();
  const { labels } = aligned;
  const map = useMemo(() => ({ rows: labels, columns: labels, values: difference.values }), [difference, labels]);
  const order = largest(difference.values.map(Math.abs), SHOWN);
  const cellOf = (i: number): Cell => [Math.floor(i / difference.size), i % difference.size];
  const at = useSignal<Cell>(cellOf(order[0]!));
  const [one, two] = [namedHead(first, store.current.value), namedHead(second, other.current.value)];
  const told = ([row, column]: Cell): string => {
    const [i, j] = [row * difference.size + column, row * (difference.size + 1) + column];
    const cell = `from “${labels[row]}” to “${labels[column]}”`;
    const [was, is] = [difference.first[j]!, difference.second[j]!].map(weightText);
    return `${signedText(difference.values[i]!)} ${cell}: ${was} in the first, ${is} in the second`;
  };
  return (
    <>
      <h2>{one === two ? `${two}, second minus first` : `${two} minus ${one}`}</h2>
      <LeftOut aligned={aligned} />
      <Words difference={difference} first={first} aligned={aligned} />
      <div class="difference">
        <div>
          <p class="note">
            <span class="swatch above" aria-hidden="true" /> more in the second,{" "}
            <span class="swatch below" aria-hidden="true" /> less. Point at a cell, or move with the arrow keys.
          </p>
          <SignedMapFrame map={map} at={at} label={`Difference map, ${two} minus ${one}`} told={told} />
          <ColourBar most={largestSize(difference.values)} />
        </div>
        <table class="differences">
          <caption>The largest differences</caption>
          <thead>
            <tr>
              <th scope="col">From</th>
              <th scope="col">To</th>
              {["First", "Second", "Difference"].map((title) => (
                <th scope="col" class="number" key={title}>
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {order.map((i) => {
              const [row, column] = cellOf(i);
              const j = row * (difference.size + 1) + column;
              return (
                <tr key={i}>
                  <td class="label">{labels[row]}</td>
                  <td class="label">{labels[column]}</td>
                  <td class="number">{weightText(difference.first[j]!)}</td>
                  <td class="number">{weightText(difference.second[j]!)}</td>
                  <td class="number">{signedText(difference.values[i]!)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** The tokens that stand for none of the other text, by name. */
function LeftOut({ aligned: { left } }: Pick<Both, "aligned">) {
  const named = left.flatMap((units, side) => {
    if (units.length === 0) return [];
    const names = units.slice(0, NAMED).map(({ label }) => `“${label}”`);
    const more = units.length > NAMED ? ` and ${units.length - NAMED} more` : "";
    return [`${names.join(", ")}${more} of the ${side === 0 ? "first" : "second"}`];
  });
  if (named.length === 0) return null;
  return <p class="note left-out">Left out, without a counterpart: {named.join("; ")}.</p>;
}

/** The tokens of both, coloured by what those that are pinned, or the one that is pointed at, give more or less. */
function Words({ difference, first, aligned }: Pick<ShownProps, "difference"> & Pick<Both, "first" | "aligned">) {
  const store = useStore();
  const chosen = useSignal<number | null>(null);
  const { size, values } = difference;
  const pinned = store.sourcesIn(first).map((position) => aligned.first.indexOf(first.indexOf.get(position)!));
  const active = pinned.length > 0 ? pinned : chosen.value === null ? [] : [chosen.value];
  const to = store.fields.direction.value === "to";
  const effects = Float32Array.from({ length: size }, (_, i) =>
    active.reduce((sum, one) => sum + (one < 0 ? 0 : values[to ? i * size + one : one * size + i]!), 0),
  );
  const { text, units } = useMemo(() => textOf(first, aligned), [first, aligned]);
  return (
    <>
      <div class="view-tools">
        <Directions />
      </div>
      <UnitText
        label="Tokens of both, by the difference"
        text={text}
        segment={0}
        units={units}
        effects={effects}
        most={largestSize(values)}
        chosen={chosen}
        pinned={pinned}
        press={(i, add) => store.pin(first.kept[aligned.first[i]!]!.position, add)}
      />
    </>
  );
}

/** The labels as one text. */
function textOf({ kept }: Overview, { first, labels }: Both["aligned"]) {
  let text = "";
  let end = 0;
  const offsets = labels.map((label, i): [number, number] => {
    const { spaced, broken } = kept[first[i]!]!;
    const between = i === 0 ? "" : broken ? "\n" : spaced || label.includes("/") ? " " : "";
    text += between + label;
    const begin = end + between.length;
    end = begin + Array.from(label).length;
    return [begin, end];
  });
  return { text, units: { text: labels, offsets, segment: labels.map(() => 0) } };
}

/** How far the heads are from each other. */
function AllHeads({ both, other, distances }: DifferenceProps) {
  const store = useStore();
  const now = distances.value;
  const { problem, found, layers, of } = now;
  if (typeof problem === "string") return null;
  const { weights } = both.first.subject;
  const shares = weights === "probability" || weights === "rollout";
  const rated: Rated = {
    overview: now,
    rate: (id) => distanceOf(now, id),
    title: "difference",
    ascending: of !== null,
  };
  return (
    <section class="difference-heads" aria-label="Differences of all heads">
      <h2>
        {of === null
          ? "How much every head differs"
          : `How far the heads of ${both.second.subject.model.name} are from ${namedHead(both.first, of)}`}
      </h2>
      <p class="note">
        {shares
          ? "The share of a row’s weight that goes elsewhere, mean of the rows: 0 is the same, 1 nothing in common."
          : "The mean size of the difference of a weight."}
      </p>
      {problem !== null && <p class="problem">{sentence(problem)}</p>}
      {!isDone(now) && problem === null && <progress max={layers} value={found.length} aria-label="Layers" />}
      {/* A click on a head of the second chooses what stands beside. */}
      <StoreContext.Provider value={of === null ? store : other}>
        <div class="heads-view">
          <RatedGrid {...rated} />
          <RankedHeads {...rated} />
        </div>
      </StoreContext.Provider>
    </section>
  );
}

/** Load both maps and take the one from the other. */
function differenceOf(store: Store, other: Store, both: Both): Loaded<Difference> {
  if (withoutDifference(both, store.limit.value) !== null) return { state: "loading" };
  const { first, second, aligned } = both;
  const one = headMap(store.loader, first, store.current.value, aligned.first);
  const two = headMap(store.loader, second, other.current.value, aligned.second);
  if (one.state !== "ready") return one;
  if (two.state !== "ready") return two;
  const size = aligned.first.length;
  const values = minus(two.value, one.value, size);
  return { state: "ready", value: { size, first: one.value, second: two.value, values } };
}

function headMap(
  loader: Loader,
  { subject }: Overview,
  [layer, head]: HeadId,
  indices: readonly number[],
): Loaded<Float32Array> {
  const maps = loader.layer(subject, layer).value;
  if (maps.state !== "ready") return maps;
  return { state: "ready", value: cut(mapOf(maps.value, head), maps.value.size, indices) };
}
