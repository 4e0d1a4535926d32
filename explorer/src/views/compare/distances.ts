/** How far the heads of two inputs are from each other, computed from the maps of one layer after the other. */

import { effect, type ReadonlySignal, type Signal } from "@preact/signals-core";
import { mapOf } from "../../data/maps.js";
import type { Overview } from "../../data/overview.js";
import { fitsWhole, keyOf } from "../../data/requests.js";
import { cut, distance } from "../../drawing/difference.js";
import type { HeadId } from "../../state/fields.js";
import { headName, type Store } from "../../state/store.js";
import type { Aligned } from "./align.js";

export interface Distances {
  readonly key: string;
  /** The head of the first that each head of the second is compared with; null is the one of the same name. */
  readonly of: HeadId | null;
  /** How many layers and heads are compared. */
  readonly layers: number;
  readonly heads: number;
  /** Why there are none, or why the next layer could not be loaded. */
  readonly problem: string | Error | null;
  /** (heads,) for each layer that was read so far. */
  readonly found: readonly Float32Array[];
}

export const NONE: Distances = { key: "", of: null, layers: 0, heads: 0, problem: null, found: [] };

/** What both stores show, and the rows that their maps have in common. */
export interface Both {
  readonly first: Overview;
  readonly second: Overview;
  readonly aligned: Aligned;
}

/** The distance of a head; NaN until its layer is read. */
export function distanceOf({ found }: Distances, [layer, head]: HeadId): number {
  return found[layer]?.[head] ?? Number.NaN;
}

export function isDone({ found, layers, key }: Distances): boolean {
  return key !== "" && found.length === layers;
}

/** The head of the second that is nearest. */
export function nearestOf({ found, heads }: Distances): HeadId {
  const all = found.flatMap((row) => [...row]);
  const best = all.reduce((least, one, i) => (one < all[least]! ? i : least), 0);
  return [Math.floor(best / heads), best % heads];
}

/** Why two inputs have no difference of maps, in a sentence; null if they have one. */
export function withoutDifference({ first, second, aligned }: Both, limit: number): string | null {
  if (aligned.first.length === 0) return "No token of the one text stands for one of the other: enter another text.";
  const whole = [first, second].every(({ tokens, heads }) => fitsWhole(tokens, heads, limit));
  return whole ? null : "The texts are too long for a difference, which needs whole maps. Enter shorter ones.";
}

/** Follow both stores while distances are wanted; the heads that were found nearest go into `matched`. */
export function followDistances(
  store: Store,
  both: ReadonlySignal<Both | null>,
  matched: Signal<readonly HeadId[]>,
  distances: Signal<Distances>,
): () => void {
  const { besideHead, besideView } = store.fields;
  return effect(() => {
    const shown = both.value;
    const mode = besideHead.value;
    if (shown === null || (mode === "same" && besideView.value !== "difference")) return;
    const of = mode === "same" ? null : store.current.value;
    const begun = begin(shown, of, store.limit.value);
    const now = distances.value;
    if (now.key !== begun.key) distances.value = begun;
    else if (!isDone(now) && typeof now.problem !== "string") step(store, distances, shown);
    else if (mode === "similar" && isDone(now)) {
      const best = nearestOf(now);
      if (`${matched.peek()}` !== `${best}`) matched.value = [best];
    }
  });
}

function begin({ first, second, aligned }: Both, of: HeadId | null, limit: number): Distances {
  const key = JSON.stringify([keyOf(first.subject), keyOf(second.subject), of, aligned.byPlace]);
  const problem = withoutDifference({ first, second, aligned }, limit);
  const most = (one: number, two: number) => (of === null ? Math.min(one, two) : two);
  const sizes = { layers: most(first.layers, second.layers), heads: most(first.heads, second.heads) };
  return { key, of, ...sizes, problem, found: [] };
}

/** Read the next layer, if it is there. */
function step({ loader }: Store, distances: Signal<Distances>, { first, second, aligned }: Both): void {
  const now = distances.peek();
  const layer = now.found.length;
  const [mine, theirs] = [
    loader.layer(first.subject, now.of?.[0] ?? layer).value,
    loader.layer(second.subject, layer).value,
  ];
  const failed = [mine, theirs].find(({ state }) => state === "failed");
  if (failed?.state === "failed" && failed.error !== now.problem) {
    distances.value = { ...now, problem: failed.error };
  } else if (mine.state === "ready" && theirs.state === "ready") {
    const shares = first.subject.weights === "probability" || first.subject.weights === "rollout";
    const count = aligned.first.length;
    const row = Float32Array.from({ length: now.heads }, (_, head) => {
      const one = cut(mapOf(mine.value, now.of?.[1] ?? head), mine.value.size, aligned.first);
      const two = cut(mapOf(theirs.value, head), theirs.value.size, aligned.second);
      return distance(one, two, count, shares);
    });
    distances.value = { ...now, problem: null, found: [...now.found, row] };
  }
}

/** The head and the model of either side, as titles have them. */
export function namedHead({ subject }: Overview, id: HeadId): string {
  const name = subject.weights === "rollout" ? `rollout through layer ${id[0]}` : headName(id);
  return `${name} of ${subject.model.name}`;
}
