/** The store of what stands beside: the same controls, the same pins where the token exists, and the wanted heads. */

import { batch, computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals-core";
import { useEffect, useMemo } from "preact/hooks";
import type { HeadId } from "../../state/fields.js";
import type { Store } from "../../state/store.js";
import { type Alignment, align, aligned } from "./align.js";
import { type Both, type Distances, followDistances, NONE } from "./distances.js";

export interface Beside {
  readonly other: Store;
  /** Null until both are there. */
  readonly both: ReadonlySignal<Both | null>;
  readonly distances: ReadonlySignal<Distances>;
}

/** It lives as long as the component that calls this. */
export function useOther(store: Store): Beside {
  const { start, ...beside } = useMemo(() => besideOf(store), [store]);
  useEffect(start, [start]);
  return beside;
}

/** Whether there is no other text or model to compare with. */
export function nothingBeside({ fields: { besideText, besidePair, besideModel } }: Store): boolean {
  return [besideText, besidePair, besideModel].every(({ value }) => value === null);
}

function besideOf(store: Store): Beside & { start: () => () => void } {
  /** The heads that were found most similar. */
  const matched = signal<readonly HeadId[]>([]);
  const other = store.beside({
    text: signal(""),
    pair: signal(null),
    model: signal(null),
    prompt: signal(null),
    pinned: signal([]),
    ablated: signal([]),
    heads: headsBeside(store, matched),
  });
  const alignment = computed(() => {
    const [first, second] = [store.shown.value, other.shown.value];
    if (first === null || second === null) return null;
    const byPlace =
      store.fields.besideAlign.value === "auto" && first.subject.model.name === second.subject.model.name;
    return align(first.units, second.units, byPlace);
  });
  const both = computed(() => {
    const [first, second, found] = [store.shown.value, other.shown.value, alignment.value];
    if (first === null || second === null || found === null) return null;
    return { first, second, aligned: aligned(first, second, found) };
  });
  const distances = signal(NONE);
  const start = () => {
    const stops = [keepInStep(store, other, alignment), followDistances(store, both, matched, distances)];
    return () => {
      for (const stop of stops) stop();
    };
  };
  return { other, both, distances, start };
}

/** The heads of the second: those of the first, its own, or the most similar. Choosing others makes them its own. */
function headsBeside({ fields }: Store, matched: Signal<readonly HeadId[]>): Signal<readonly HeadId[]> {
  const { heads, besideHead, besideHeads } = fields;
  const chosen = computed(() => {
    const own = { same: heads, own: besideHeads, similar: matched }[besideHead.value].value;
    return own.length > 0 ? own : heads.value;
  });
  return {
    get value() {
      return chosen.value;
    },
    set value(ids) {
      batch(() => {
        if (besideHead.value === "same") heads.value = ids;
        else [besideHead.value, besideHeads.value] = ["own", ids];
      });
    },
    peek: () => chosen.peek(),
  } as Signal<readonly HeadId[]>;
}

/** Follow both stores until the returned function is called. */
function keepInStep(store: Store, other: Store, alignment: ReadonlySignal<Alignment | null>): () => void {
  const { fields } = store;
  const stops = [
    effect(() => {
      const model = fields.besideModel.value ?? store.model.value?.name ?? null;
      const values = {
        model,
        text: fields.besideText.value ?? fields.text.value,
        pair: fields.pair.value === null ? null : (fields.besidePair.value ?? fields.pair.value),
        // Prompts belong to a model.
        prompt: model === store.model.value?.name ? fields.prompt.value : null,
        // Nothing else beside it, a run without some heads stands beside the one with all.
        ablated: nothingBeside(store) ? [] : fields.ablated.value,
      };
      batch(() => {
        other.fields.model.value = values.model;
        other.fields.text.value = values.text;
        other.fields.pair.value = values.pair;
        other.fields.prompt.value = values.prompt;
        other.fields.ablated.value = values.ablated;
      });
    }),
    effect(() => {
      if (store.unpinned.value > 0) other.unpin();
    }),
    ...mirror(fields.pinned, other.fields.pinned, alignment, (list, positions) => {
      const found = translatedAll(list, positions);
      // Half an edge would be one of another token.
      return store.edging.value && found.length < list.length ? [] : found;
    }),
    ...mirror(store.hovered, other.hovered, alignment, translated),
  ];
  return () => {
    for (const stop of stops) stop();
  };
}

type Positions = ReadonlyMap<number, number>;

/** What has no counterpart stays on its side. */
function mirror<T>(
  first: Signal<T>,
  second: Signal<T>,
  alignment: { readonly value: Alignment | null; peek(): Alignment | null },
  translate: (value: T, positions: Positions) => T,
): (() => void)[] {
  const follow = (from: Signal<T>, to: Signal<T>, there: Positions, back: Positions): void => {
    if (JSON.stringify(translate(to.peek(), back)) === JSON.stringify(from.value)) return;
    to.value = translate(from.value, there);
  };
  return [
    effect(() => {
      first.value;
      const found = alignment.value;
      if (found !== null) follow(first, second, found.toSecond, found.toFirst);
    }),
    effect(() => {
      second.value;
      // A new input takes over the pins of the first, not the other way round.
      const found = alignment.peek();
      if (found !== null) follow(second, first, found.toFirst, found.toSecond);
    }),
  ];
}

function translated(position: number | null, positions: Positions): number | null {
  return position === null ? null : (positions.get(position) ?? null);
}

function translatedAll(list: readonly number[], positions: Positions): readonly number[] {
  return list.map((position) => positions.get(position)).filter((position) => position !== undefined);
}
