/**
 * The explorer as one module: on its own page it mounts itself; elsewhere `mount(element, source, state)` does.
 */

import { effect } from "@preact/signals";
import { render as draw, h } from "preact";
import { EmbeddedSource } from "./data/embedded.js";
import { HttpSource } from "./data/http.js";
import { KernelSource, type WidgetModel } from "./data/notebook.js";
import type { FileData } from "./data/packed.js";
import type { Source } from "./data/source.js";
import { App } from "./layout/App.js";
import { keepKeys } from "./layout/keys.js";
import { changedFields, initialState, parseState, type State } from "./state/fields.js";
import { followAddress } from "./state/history.js";
import { Store } from "./state/store.js";

export type { Source } from "./data/source.js";
export type { State } from "./state/fields.js";
export { HttpSource };

/** What a page does with a mounted explorer. */
export interface Mounted {
  readonly store: Store;
  /** Take the explorer off the page. */
  unmount(): void;
}

/** Show an explorer in an element. Fields that `state` leaves out are initial. */
export function mount(element: HTMLElement, source: Source, state: Partial<State> = {}): Mounted {
  const store = new Store(source, { ...initialState(), ...state });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = (): void => {
    // JupyterLab has a theme of its own.
    const { jpThemeLight } = document.body.dataset;
    store.systemDark.value = jpThemeLight === undefined ? dark.matches : jpThemeLight === "false";
  };
  follow();
  dark.addEventListener("change", follow);
  const observer = new MutationObserver(follow);
  observer.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
  draw(h(App, { store }), element);
  void store.readInfo();
  return {
    store,
    unmount: () => {
      dark.removeEventListener("change", follow);
      observer.disconnect();
      draw(null, element);
    },
  };
}

/** The explorer as a widget of anywidget: the kernel has the client, and `state` is a trait. */
function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  const source = new KernelSource(model);
  const { store, unmount } = mount(el, source, parseState(model.get("state")));
  const stop = effect(() => {
    model.set("state", changedFields(store.state.value));
    model.save_changes();
  });
  const release = keepKeys(el);
  return () => {
    release();
    stop();
    unmount();
    source.close();
  };
}

export default { render };

const page = document.getElementById("headlight-explorer");
const held = document.getElementById("headlight-data");
if (page !== null && held !== null) {
  const data = JSON.parse(held.textContent) as FileData;
  const { store } = mount(page, new EmbeddedSource(data), parseState(data.state));
  // A document within another has no address of its own.
  if (location.protocol !== "about:") void followAddress(store, true);
} else if (page !== null) {
  // The service may stand below a prefix: its routes are beside this page.
  const { store } = mount(page, new HttpSource(new URL(".", document.baseURI).href));
  void followAddress(store);
}
