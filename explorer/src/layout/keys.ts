/** The keys that work everywhere on the page. */

import type { Store } from "../state/store.js";
import { isGuest } from "./context.js";
import { openHelp } from "./Help.js";

/** Whether Shift was down when a key was last pressed or released. */
let shifted = false;

/** Whether a click was made with Shift: one that a key makes does not say so in Firefox. */
export function isShifted({ shiftKey, detail }: MouseEvent): boolean {
  return shiftKey || (detail === 0 && shifted);
}

/** With Shift a click adds: it does not select the text in between. */
function keepSelection(event: MouseEvent): void {
  const target = (event.target as Element).closest<HTMLElement>("[tabindex], button");
  if (!event.shiftKey || target === null) return;
  event.preventDefault();
  target.focus();
}

/** Follow the keys until the returned function is called. Keys in fields and dialogs are theirs. */
export function followKeys(store: Store, root: HTMLElement): () => void {
  const note = ({ shiftKey }: KeyboardEvent): void => {
    shifted = shiftKey;
  };
  const press = (event: KeyboardEvent): void => {
    const target = event.target as HTMLElement;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest("input, textarea, select") || root.querySelector("dialog[open]") !== null) return;
    const act = actions(store, root)[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  };
  // A notebook has keys of its own: there, only those pressed within the explorer count.
  const listened = isGuest(root) ? root : document;
  const listeners = [
    [listened, "keydown", press, false],
    [root, "keydown", note, true],
    [root, "keyup", note, true],
    [root, "mousedown", keepSelection, false],
  ] as const;
  for (const [where, name, listener, first] of listeners)
    where.addEventListener(name, listener as EventListener, first);
  return () => {
    for (const [where, name, listener, first] of listeners)
      where.removeEventListener(name, listener as EventListener, first);
  };
}

/**
 * Keep keys that are pressed within an element from JupyterLab, whose letters cut and insert cells; those with Ctrl
 * still save. It looks at the element with the focus alone, before any listener within the document.
 */
export function keepKeys(element: HTMLElement): () => void {
  const mark = ({ target, ctrlKey, metaKey, altKey }: KeyboardEvent): void => {
    if (!element.contains(target as Node)) return;
    (target as Element).toggleAttribute("data-lm-suppress-shortcuts", !(ctrlKey || metaKey || altKey));
  };
  addEventListener("keydown", mark, true);
  return () => removeEventListener("keydown", mark, true);
}

function actions(store: Store, root: HTMLElement): Record<string, () => void> {
  return {
    "[": () => store.step(-1, 0),
    "]": () => store.step(1, 0),
    ",": () => store.step(0, -1),
    ".": () => store.step(0, 1),
    "/": () => root.querySelector<HTMLInputElement>("input.find")?.focus(),
    "?": () => openHelp(root),
    Escape: () => store.unpin(),
  };
}
