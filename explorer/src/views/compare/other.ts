/** The store of what stands beside: the same heads and controls, and the same pins where the token exists. */

import { batch, computed, effect, type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { Store } from "../../state/store.js";
import { type Alignment, align } from "./align.js";

/** It lives as long as the component that calls this. */
export function useOther(store: Store): Store {
  const other = useMemo(
    () =>
      store.beside({
        text: signal(""),
        pair: signal(null),
        model: signal(null),
        prompt: signal(null),
        pinned: signal([]),
        ablated: signal([]),
      }),
    [store],
  );
  useEffect(() => keepInStep(store, other), [store, other]);
  return other;
}

/** Whether there is no other text or model to compare with. */
export function nothingBeside({ fields: { besideText, besidePair, besideModel } }: Store): boolean {
  return [besideText, besidePair, besideModel].every(({ value }) => value === null);
}

/** Follow both stores until the returned function is called. */
function keepInStep(store: Store, other: Store): () => void {
  const { fields } = store;
  const alignment = computed(() => {
    const [first, second] = [store.shown.value, other.shown.value];
    return first === null || second === null ? null : align(first.units, second.units);
  });
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
    ...mirror(fields.pinned, other.fields.pinned, alignment, translatedAll),
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
