/** How components reach the store. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Store } from "../state/store.js";

export const StoreContext = createContext<Store | null>(null);

/** The store of the page that a component stands on. */
export function useStore(): Store {
  const store = useContext(StoreContext);
  if (store === null) throw new Error("A component that reads the store stands outside of mount().");
  return store;
}
