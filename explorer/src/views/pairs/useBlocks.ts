/** The blocks of a pair, computed from the maps of one layer after the other. */

import { type ReadonlySignal, type Signal, signal } from "@preact/signals-core";
import { BLOCKS, type Block, blocksOf, withoutBlocks } from "../../data/blocks.js";
import type { Overview } from "../../data/overview.js";
import { useStore } from "../../layout/context.js";
import type { HeadId } from "../../state/fields.js";
import { useSignalEffect } from "../../state/signals.js";

export interface Blocks {
  /** Why there are none, or why the next layer could not be loaded. */
  readonly problem: string | Error | null;
  /** (H, 4) for each layer that was read so far; of rollout (1, 4). */
  readonly layers: readonly Float32Array[];
}

/** They are small, and stay while the overview does: the maps that they come from may make room for others. */
const known = new WeakMap<Overview, Signal<Blocks>>();

/** Reads a layer at a time, for as long as the component that calls it is shown. */
export function useBlocks(overview: Overview): ReadonlySignal<Blocks> {
  const { loader, limit } = useStore();
  let blocks = known.get(overview);
  if (blocks === undefined) {
    blocks = signal({ problem: withoutBlocks(overview, limit.peek()), layers: [] });
    known.set(overview, blocks);
  }
  const found = blocks;
  useSignalEffect(() => {
    const { layers, problem } = found.value;
    if (typeof problem === "string" || layers.length === overview.layers) return;
    const maps = loader.layer(overview.subject, layers.length).value;
    if (maps.state === "ready") {
      found.value = { problem: null, layers: [...layers, blocksOf(maps.value, overview.kept)] };
    } else if (maps.state === "failed" && maps.error !== problem) {
      found.value = { problem: maps.error, layers };
    }
  });
  return found;
}

/** The mass of a block in a head; NaN until its layer is read. Rollout has one map for all heads. */
export function blockOf({ layers }: Blocks, block: Block, [layer, head]: HeadId): number {
  const own = layers[layer];
  if (own === undefined) return Number.NaN;
  return own[(own.length === BLOCKS.length ? 0 : BLOCKS.length * head) + BLOCKS.indexOf(block)]!;
}
