/** Keeps the address bar and a store in step: a change of the one becomes a change of the other. */

import { effect } from "@preact/signals";
import { fromFragment, toFragment } from "./fragment.js";
import type { Store } from "./store.js";

/** Changes that follow each other this fast are one step of the history. */
const STEP_MS = 250;

/**
 * Read the address bar, then follow both. Returns a function that ends it. With `own` the store keeps its state where
 * the address has none.
 */
export async function followAddress(store: Store, own = false): Promise<() => void> {
  const read = async () => store.restore(await fromFragment(location.hash));
  if (!own || location.hash !== "") await read();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let first = true;
  const stop = effect(() => {
    const state = store.state.value;
    clearTimeout(timer);
    if (first) {
      first = false;
      return;
    }
    timer = setTimeout(async () => {
      const fragment = await toFragment(state);
      if (store.state.peek() !== state || fragment === location.hash.slice(1)) return;
      history.pushState(null, "", fragment === "" ? location.pathname + location.search : `#${fragment}`);
    }, STEP_MS);
  });
  // Typing another fragment fires both events, and going back to it too: reading twice does no harm.
  addEventListener("popstate", read);
  addEventListener("hashchange", read);
  return () => {
    stop();
    clearTimeout(timer);
    removeEventListener("popstate", read);
    removeEventListener("hashchange", read);
  };
}
