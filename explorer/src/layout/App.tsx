/** The page: header, inputs, controls, tabs, and the chosen view. */

import { useEffect, useRef } from "preact/hooks";
import { useSignalEffect } from "../state/signals.js";
import type { Store } from "../state/store.js";
import { Controls } from "./Controls.js";
import { isGuest, StoreContext } from "./context.js";
import { Footer } from "./Footer.js";
import { followFirstLook } from "./firstLook.js";
import { Header } from "./Header.js";
import { Help } from "./Help.js";
import { Inputs } from "./Inputs.js";
import { KeyDialog } from "./KeyDialog.js";
import { followKeys } from "./keys.js";
import { Problems } from "./Problems.js";
import { ViewPanel } from "./ViewPanel.js";

export function App({ store }: { store: Store }) {
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => followKeys(store, root.current!), [store]);
  useEffect(() => followFirstLook(store), [store]);
  useSignalEffect(() => {
    if (isGuest(root.current!)) return;
    // `color-scheme` of the page colours scroll bars and the ground behind it.
    document.documentElement.dataset["headlightTheme"] = store.dark.value ? "dark" : "light";
  });
  return (
    <StoreContext.Provider value={store}>
      <div class="headlight" ref={root} data-theme={store.dark.value ? "dark" : "light"}>
        <Header />
        <main class="main">
          {!store.source.held && <Inputs />}
          <Problems />
          <Controls />
          <ViewPanel />
        </main>
        <Footer />
        <Help />
        <KeyDialog />
        <div class="unseen" role="status" aria-live="polite">
          {store.spoken.value}
        </div>
      </div>
    </StoreContext.Provider>
  );
}
