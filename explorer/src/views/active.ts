/** The weights that views show: of the pinned tokens, or before one is pinned of the token under the pointer. */

import type { Overview } from "../data/overview.js";
import { fitsWhole } from "../data/requests.js";
import { weightsOf } from "../data/weights.js";
import type { Store } from "../state/store.js";

export interface Active {
  readonly positions: readonly number[];
  /** (N,) over `overview.kept`; null while loading, without a token, or after a failure. */
  readonly weights: Float32Array | null;
  readonly error: Error | null;
}

const NOTHING: Active = { positions: [], weights: null, error: null };

/** Read them; within a computed signal or an effect this follows all that they depend on. */
export function activeWeights(store: Store, overview: Overview): Active {
  const heads = store.headsOf(overview);
  const pinned = store.sourcesIn(overview);
  const hovered = store.hovered.value;
  const whole = fitsWhole(overview.tokens, overview.heads, store.limit.value);
  // Of a long input each row is a request of its own: pointing at a token does not send one.
  const pointed = hovered !== null && whole && overview.indexOf.has(hovered) ? [hovered] : [];
  const positions = pinned.length > 0 ? pinned : pointed;
  if (positions.length === 0) {
    if (whole) store.loader.layer(overview.subject, heads.at(-1)![0]).value;
    return NOTHING;
  }
  const loaded = weightsOf(store.loader, overview, {
    heads,
    positions,
    direction: store.fields.direction.value,
    whole,
    rows: pinned.length > 0,
  });
  if (loaded.state === "ready") return { positions, weights: loaded.value, error: null };
  return { positions, weights: null, error: loaded.state === "failed" ? loaded.error : null };
}
