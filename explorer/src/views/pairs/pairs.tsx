/** How much the two texts of a pair look at each other, in every head. */

import { BLOCKS, type Block } from "../../data/blocks.js";
import { weightText } from "../../drawing/numbers.js";
import { useStore } from "../../layout/context.js";
import { sentence } from "../../layout/Problems.js";
import type { HeadId } from "../../state/fields.js";
import { headName } from "../../state/store.js";
import { HeadGrid } from "../headGrid.js";
import type { ViewProps } from "../view.js";
import { type Blocks, blockOf, useBlocks } from "./useBlocks.js";

/** From which text to which. */
export const BLOCK_TITLES: Readonly<Record<Block, string>> = { aa: "A→A", ab: "A→B", ba: "B→A", bb: "B→B" };

export function PairsView({ overview }: ViewProps) {
  const store = useStore();
  const blocks = useBlocks(overview).value;
  const { problem, layers } = blocks;
  if (typeof problem === "string") return <p class="note">{problem}</p>;
  const id = store.current.value;
  const done = layers.length === overview.layers;
  return (
    <div class="heads-view pairs-view">
      <div>
        <div class="view-tools">
          <Legend />
          {!done && problem === null && (
            <label class="progress">
              <span>
                Layer {layers.length} of {overview.layers}
              </span>
              <progress max={overview.layers} value={layers.length} />
            </label>
          )}
        </div>
        {problem !== null && <p class="problem">{sentence(problem)}</p>}
        <HeadGrid
          overview={overview}
          class="cell bars"
          label={(head) => `${headName(head)}: ${told(blocks, head)}`}
          cell={(head) => <Bars blocks={blocks} id={head} />}
        />
      </div>
      <Panel blocks={blocks} id={id} rollout={overview.subject.weights === "rollout"} />
    </div>
  );
}

function Legend() {
  return (
    <p class="note pairs-legend">
      <span class="swatch to-a" aria-hidden="true" /> from the left: to the first text, A;{" "}
      <span class="swatch to-b" aria-hidden="true" /> from the right: to the second, B; between them: to special
      tokens. The upper bar is the mean of A’s tokens, the lower one of B’s.
    </p>
  );
}

/** Two bars: those of A above those of B; what goes to A from the left, what goes to B from the right. */
function Bars({ blocks, id }: { blocks: Blocks; id: HeadId }) {
  const [aa, ab, ba, bb] = BLOCKS.map((block) => share(blockOf(blocks, block, id)));
  return (
    <svg class="block-bars" viewBox="0 0 100 60" preserveAspectRatio="none" aria-hidden="true">
      <rect class="ground" width="100" height="28" />
      <rect class="to-a" width={aa} height="28" />
      <rect class="to-b" x={100 - ab!} width={ab} height="28" />
      <rect class="ground" y="32" width="100" height="28" />
      <rect class="to-a" y="32" width={ba} height="28" />
      <rect class="to-b" x={100 - bb!} y="32" width={bb} height="28" />
    </svg>
  );
}

/** Per cent, from 0 to 100: norms of values are not bounded by 1. */
function share(mass: number): number {
  return Number.isNaN(mass) ? 0 : 100 * Math.min(Math.max(mass, 0), 1);
}

/** The current head in numbers. */
function Panel({ blocks, id, rollout }: { blocks: Blocks; id: HeadId; rollout: boolean }) {
  const store = useStore();
  const mass = (block: Block): number => blockOf(blocks, block, id);
  return (
    <aside class="head-panel">
      <Bars blocks={blocks} id={id} />
      <table class="block-table">
        <caption>
          <strong>{rollout ? `Rollout through layer ${id[0]}` : headName(id)}</strong>
          <span class="note"> mean mass of a row</span>
        </caption>
        <thead>
          <tr>
            <td />
            <th scope="col" class="number">
              to A
            </th>
            <th scope="col" class="number">
              to B
            </th>
            <th scope="col" class="number">
              to special
            </th>
          </tr>
        </thead>
        <tbody>
          {(["a", "b"] as const).map((from) => (
            <tr key={from}>
              <th scope="row">from {from.toUpperCase()}</th>
              <td class="number">{weightText(mass(`${from}a`))}</td>
              <td class="number">{weightText(mass(`${from}b`))}</td>
              <td class="number">{rest(mass(`${from}a`) + mass(`${from}b`), store.fields.weights.value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <button
        type="button"
        onClick={() => {
          store.fields.view.value = "table";
        }}
      >
        All heads as a table
      </button>
    </aside>
  );
}

/** What a row gives to special tokens: only probabilities have a sum that is known. */
function rest(sum: number, weights: string): string {
  return weights === "value_norm" ? "–" : weightText(Math.max(0, 1 - sum));
}

function told(blocks: Blocks, id: HeadId): string {
  return BLOCKS.map((block) => `${BLOCK_TITLES[block]} ${weightText(blockOf(blocks, block, id))}`).join(", ");
}
