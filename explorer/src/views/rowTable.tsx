/** The pinned row as a table: what the colours show, in numbers. */

import type { Overview } from "../data/overview.js";
import { largest, weightText } from "../drawing/numbers.js";
import { sentence } from "../layout/Problems.js";
import { useComputed, useSignal } from "../state/signals.js";
import { headName, type Store } from "../state/store.js";
import { activeWeights } from "./active.js";
import { EdgeHeads, EdgeWeight } from "./edge.js";

const SHOWN = 12;

export function RowTable({ overview, store }: { overview: Overview; store: Store }) {
  const all = useSignal(false);
  const active = useComputed(() => activeWeights(store, overview));
  const { positions, weights, error } = active.value;
  const count = overview.kept.length;
  // Before there are weights, the same rows keep the room that these take.
  const order = largest(weights ?? new Float32Array(count), all.value ? count : SHOWN);
  const most = weights === null || order.length === 0 ? 0 : weights[order[0]!]!;
  return (
    <aside
      class={weights === null ? "row-table empty" : "row-table"}
      aria-busy={weights === null && error === null && positions.length > 0}
    >
      <EdgeWeight overview={overview} />
      <table>
        <caption>
          {positions.length > 0 ? (
            <Caption overview={overview} store={store} positions={positions} />
          ) : (
            <span class="note">Point at a token to see its weights. Click to pin it; Shift-click adds another.</span>
          )}
        </caption>
        <thead>
          <tr>
            <th scope="col" class="number">
              Position
            </th>
            <th scope="col">{overview.subject.level === "word" ? "Word" : "Token"}</th>
            <th scope="col" class="number">
              Weight
            </th>
            <td />
          </tr>
        </thead>
        <tbody>
          {order.map((i, rank) => (
            <tr key={rank}>
              <td class="number faint">{overview.kept[i]!.position}</td>
              <td class="label" dir="auto" title={overview.kept[i]!.label}>
                {overview.kept[i]!.label}
              </td>
              <td class="number">{weights === null ? "" : weightText(weights[i]!)}</td>
              <td class="bar" aria-hidden="true">
                <Bar share={most > 0 ? Math.max(0, weights![i]! / most) : 0} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {error !== null && <p class="problem">{sentence(error)}</p>}
      {count > SHOWN && (
        <button
          type="button"
          class="quiet"
          onClick={() => {
            all.value = !all.value;
          }}
        >
          {all.value ? `Show the largest ${SHOWN}` : `Show all ${count.toLocaleString("en")}`}
        </button>
      )}
      <EdgeHeads overview={overview} />
    </aside>
  );
}

function Bar({ share }: { share: number }) {
  return (
    <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect width={100 * share} height="8" />
    </svg>
  );
}

/** Whose weights these are, in words. */
function Caption({ overview, store, positions }: { overview: Overview; store: Store; positions: readonly number[] }) {
  const names = positions.map((position) => `“${overview.units[position]!.label}”`).join(" + ");
  const heads = store.headsOf(overview);
  const { weights } = overview.subject;
  const [layer] = heads.at(-1)!;
  const where =
    weights === "rollout"
      ? `rollout through layer ${layer}`
      : heads.length === 1
        ? headName(heads[0]!)
        : `mean of ${heads.length} heads`;
  return (
    <>
      <span title={names}>
        {store.fields.direction.value === "from" ? "From " : "Into "}
        <strong>{names}</strong>
      </span>
      <span class="faint">{where}</span>
    </>
  );
}
