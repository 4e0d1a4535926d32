/** How components reach the store. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Store } from "../state/store.js";

export const StoreContext = createContext<Store | null>(null);

/** The element that the explorer fills on a page of its own. */
export const PAGE = "headlight-explorer";

/** Whether it stands among other things, whose keys and colours are not its own: in a notebook. */
export function isGuest(root: HTMLElement): boolean {
  return root.parentElement!.id !== PAGE;
}

/** The store of the page that a component stands on. */
export function useStore(): Store {
  const store = useContext(StoreContext);
  if (store === null) throw new Error("A component that reads the store stands outside of mount().");
  return store;
}
