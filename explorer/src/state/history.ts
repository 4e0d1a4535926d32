/** Keeps the address bar and a store in step: a change of the one becomes a change of the other. */

import { effect } from "@preact/signals-core";
import { changedFields, parseState, type State } from "./fields.js";
import { fromFragment, toFragment } from "./fragment.js";
import type { Store } from "./store.js";

/** Changes that follow each other this fast are one step of the history. */
const STEP_MS = 250;
/** Where the tab keeps what was chosen just before the page was left. */
const LEFT = "headlight-left";

/**
 * Read the address bar, then follow both. Returns a function that ends it. With `own` the store keeps its state where
 * the address has none.
 */
export async function followAddress(store: Store, own = false): Promise<() => void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  /** What the address bar had when it was last read or written. */
  let known = location.hash;
  /** The state that it stands for: another deflate may pack the same otherwise. */
  let meant = "";
  const read = async () => {
    // The address is newer than a change that it does not have yet.
    clearTimeout(timer);
    timer = undefined;
    const { hash } = location;
    known = hash;
    const state = await fromFragment(hash);
    if (known !== hash) return;
    meant = written(state);
    store.restore(state);
  };
  const left = takeLeft();
  if (left !== null) store.restore(left);
  else if (!own || location.hash !== "") await read();
  let first = left === null;
  const stop = effect(() => {
    const state = store.state.value;
    // What is chosen for a start belongs to the entry of the text.
    const same = store.unasked && timer === undefined;
    store.unasked = false;
    clearTimeout(timer);
    if (first) {
      first = false;
      return;
    }
    const current = setTimeout(async () => {
      const fragment = await toFragment(state);
      // A later change has a timer of its own; an address that was not read yet is about to be.
      if (timer !== current || location.hash !== known) return;
      timer = undefined;
      if (written(state) === meant) return;
      meant = written(state);
      const address = fragment === "" ? location.pathname + location.search : `#${fragment}`;
      if (same) history.replaceState(null, "", address);
      else history.pushState(null, "", address);
      known = location.hash;
    }, STEP_MS);
    timer = current;
  });
  const leave = (): void => {
    if (timer !== undefined) putLeft(store.state.peek());
  };
  addEventListener("pagehide", leave);
  // Typing another fragment fires both events, and going back to it too: reading twice does no harm.
  addEventListener("popstate", read);
  addEventListener("hashchange", read);
  return () => {
    stop();
    clearTimeout(timer);
    removeEventListener("pagehide", leave);
    removeEventListener("popstate", read);
    removeEventListener("hashchange", read);
  };
}

function written(state: State): string {
  return JSON.stringify(changedFields(state));
}

/** Keep a state that the address lacks: it is too late to change the address that a reload leads to. */
function putLeft(state: State): void {
  try {
    sessionStorage.setItem(LEFT, JSON.stringify([location.hash, changedFields(state)]));
  } catch {
    // Storage is turned off.
  }
}

/** Take what was kept, if it belongs to this address. */
function takeLeft(): State | null {
  try {
    const [hash, state] = JSON.parse(sessionStorage.getItem(LEFT)!) as [string, unknown];
    sessionStorage.removeItem(LEFT);
    return hash === location.hash ? parseState(state) : null;
  } catch {
    return null;
  }
}
