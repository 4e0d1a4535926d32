/**
 * The explorer as one module: on its own page it mounts itself; elsewhere `mount(element, source, state)` does.
 */

import { effect } from "@preact/signals-core";
import { render as draw, h } from "preact";
import { EmbeddedSource } from "./data/embedded.js";
import { HttpSource } from "./data/http.js";
import { CHANGED, KernelSource, type WidgetModel } from "./data/notebook.js";
import type { FileData } from "./data/packed.js";
import type { Source } from "./data/source.js";
import { App } from "./layout/App.js";
import { PAGE } from "./layout/context.js";
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

/** How long a kernel may be silent until what the notebook holds is shown in its place. */
const SILENT_MS = 2000;

/**
 * The explorer as a widget of anywidget: the kernel has the client, and `state` is a trait, which either side changes.
 * Where the kernel does not answer, `saved` is shown: one that is gone never does, one that is busy later.
 */
function render({ model, el: place }: { model: WidgetModel; el: HTMLElement }): () => void {
  // JupyterLab takes the styles of its own element back.
  const el = place.appendChild(document.createElement("div"));
  const source = new KernelSource(model);
  const saved = model.get("saved") as FileData | null | undefined;
  let hide = (): void => undefined;
  const show = (from: Source): void => {
    hide();
    const read = () => parseState(model.get("state"));
    const { store, unmount } = mount(el, from, read());
    const follow = () => store.restore(read());
    const stop = effect(() => {
      model.set("state", changedFields(store.state.value));
      model.save_changes();
    });
    model.on(CHANGED, follow);
    hide = () => {
      model.off(CHANGED, follow);
      stop();
      unmount();
    };
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  const live = (): void => {
    clearTimeout(timer);
    show(source);
  };
  if (saved) {
    const held = Object.assign(new EmbeddedSource(saved), { assets: () => source.assets() });
    timer = setTimeout(() => show(held), SILENT_MS);
    source.info().then(live, () => undefined);
  } else live();
  // "nullpx" is no height.
  Object.assign(el.style, { height: `${model.get("height")}px`, overflow: "auto" });
  el.toggleAttribute("data-compact", model.get("compact") === true);
  const release = keepKeys(el);
  return () => {
    clearTimeout(timer);
    release();
    hide();
    source.close();
  };
}

export default { render };

const page = document.getElementById(PAGE);
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
