/** The map of a head in the second input minus that in the first, where both have the same tokens. */

import { useComputed, useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { Loaded, Loader } from "../../data/loader.js";
import { mapOf } from "../../data/maps.js";
import type { Overview } from "../../data/overview.js";
import { fitsWhole } from "../../data/requests.js";
import { largest, signedText, weightText } from "../../drawing/numbers.js";
import { useStore } from "../../layout/context.js";
import { sentence } from "../../layout/Problems.js";
import type { HeadId } from "../../state/fields.js";
import { headName, type Store } from "../../state/store.js";
import type { Cell } from "../maps/signedDrawing.js";
import { SignedMapFrame } from "../maps/signedMap.js";
import { sameTokens } from "./align.js";

interface Both {
  readonly first: Overview;
  readonly second: Overview;
}

/** Maps of a head, (N, N) each. */
export interface Difference {
  readonly size: number;
  readonly first: Float32Array;
  readonly second: Float32Array;
  /** second − first */
  readonly values: Float32Array;
}

const SHOWN = 10;

export function DifferenceView({ first, second }: Both) {
  const store = useStore();
  const found = useComputed(() => differenceOf(store, { first, second }));
  const why = reason(store, { first, second });
  if (why !== null) return <p class="note">{why}</p>;
  const loaded = found.value;
  if (loaded.state === "failed") return <p class="problem">{sentence(loaded.error)}</p>;
  if (loaded.state === "loading") return <p class="note">Loading…</p>;
  return <Shown difference={loaded.value} overview={first} />;
}

interface ShownProps {
  readonly difference: Difference;
  readonly overview: Overview;
}

function Shown({ difference, overview }: ShownProps) {
  const store = useStore();
  const at = useSignal<Cell>([0, 0]);
  const map = useMemo(() => {
    const labels = overview.kept.map(({ label }) => label);
    return { rows: labels, columns: labels, values: difference.values };
  }, [difference, overview]);
  const name = headName(store.current.value);
  const order = largest(difference.values.map(Math.abs), SHOWN);
  return (
    <div class="difference">
      <div>
        <p class="note">
          {name}, second minus first: <span class="swatch above" aria-hidden="true" /> more in the second,{" "}
          <span class="swatch below" aria-hidden="true" /> less. Point at a cell, or move with the arrow keys.
        </p>
        <SignedMapFrame
          map={map}
          at={at}
          label={`Difference map of ${name}, rows look at columns`}
          told={(cell) => told(difference, overview, cell)}
        />
      </div>
      <table class="differences">
        <caption>The largest differences</caption>
        <thead>
          <tr>
            <th scope="col">From</th>
            <th scope="col">To</th>
            <th scope="col" class="number">
              First
            </th>
            <th scope="col" class="number">
              Second
            </th>
            <th scope="col" class="number">
              Difference
            </th>
          </tr>
        </thead>
        <tbody>
          {order.map((i) => (
            <tr key={i}>
              <td class="label">{overview.kept[Math.floor(i / difference.size)]!.label}</td>
              <td class="label">{overview.kept[i % difference.size]!.label}</td>
              <td class="number">{weightText(difference.first[i]!)}</td>
              <td class="number">{weightText(difference.second[i]!)}</td>
              <td class="number">{signedText(difference.values[i]!)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function told({ size, first, second, values }: Difference, { kept }: Overview, [row, column]: Cell): string {
  const i = row * size + column;
  const cell = `from “${kept[row]!.label}” to “${kept[column]!.label}”`;
  return `${signedText(values[i]!)} ${cell}: ${weightText(first[i]!)} in the first, ${weightText(second[i]!)} in the second`;
}

/** Why there is no difference, in a sentence; null if there is one. */
function reason(store: Store, { first, second }: Both): string | null {
  const [layer, head] = store.current.value;
  if (!sameTokens(first.kept, second.kept)) {
    return "The tokens are not the same, so that there is no difference of maps. The other views show both side by side.";
  }
  if (layer >= second.layers || head >= second.heads) {
    return `${second.subject.model.name} has no ${headName([layer, head])}. Choose a head that both models have.`;
  }
  const whole = fitsWhole(first.tokens, Math.max(first.heads, second.heads), store.limit.value);
  return whole ? null : "The texts are too long for a difference, which needs whole maps. Enter shorter ones.";
}

/** Load both maps and take the one from the other. */
function differenceOf(store: Store, { first, second }: Both): Loaded<Difference> {
  if (reason(store, { first, second }) !== null) return { state: "loading" };
  const id = store.current.value;
  const [one, two] = [first, second].map((overview) => headMap(store.loader, overview, id));
  if (one!.state !== "ready") return one!;
  if (two!.state !== "ready") return two!;
  const values = two!.value.map((weight, i) => weight - one!.value[i]!);
  return { state: "ready", value: { size: first.kept.length, first: one!.value, second: two!.value, values } };
}

function headMap(loader: Loader, { subject }: Overview, [layer, head]: HeadId): Loaded<Float32Array> {
  const maps = loader.layer(subject, layer).value;
  return maps.state === "ready" ? { state: "ready", value: mapOf(maps.value, head) } : maps;
}
