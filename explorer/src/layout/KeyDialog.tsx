/** Asks for a key when the service wants one. */

import { useRef } from "preact/hooks";
import { useSignal, useSignalEffect } from "../state/signals.js";
import { useStore } from "./context.js";

export function KeyDialog() {
  const store = useStore();
  const dialog = useRef<HTMLDialogElement>(null);
  const key = useSignal("");
  useSignalEffect(() => {
    if (store.needsKey.value) dialog.current?.showModal();
    else dialog.current?.close();
  });
  return (
    <dialog class="key" ref={dialog} aria-labelledby="key-title" onCancel={() => (store.needsKey.value = false)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void store.useKey(key.value.trim());
        }}
      >
        <h2 id="key-title">This service needs a key</h2>
        {store.keyRefused.value && (
          <p class="problem" role="alert">
            The service does not know this key. Check it, and enter it again.
          </p>
        )}
        <label>
          <span>API key</span>
          <input
            type="password"
            autocomplete="off"
            required
            value={key.value}
            onInput={({ currentTarget }) => (key.value = currentTarget.value)}
          />
        </label>
        <p class="note">It is kept until this tab is closed, and is sent to this service alone.</p>
        <button type="submit" class="main">
          Use this key
        </button>
      </form>
    </dialog>
  );
}
