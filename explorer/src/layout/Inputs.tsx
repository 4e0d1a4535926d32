/** The text, or two of them, and examples to start from. Enter shows the maps. */

import { useSignal, useSignalEffect } from "../state/signals.js";
import { useStore } from "./context.js";
import { EXAMPLES } from "./examples.js";

export function Inputs() {
  const store = useStore();
  const text = useSignal(store.fields.text.peek());
  const pair = useSignal(store.fields.pair.peek());
  useSignalEffect(() => {
    text.value = store.fields.text.value;
    pair.value = store.fields.pair.value;
  });
  const enter = (): void => store.enter(text.value, pair.value);
  return (
    <form
      class="inputs"
      onSubmit={(event) => {
        event.preventDefault();
        enter();
      }}
    >
      <Area
        label={pair.value === null ? "Text" : "First text"}
        value={text.value}
        change={(v) => (text.value = v)}
        enter={enter}
      />
      {pair.value !== null && (
        <Area label="Second text" value={pair.value} change={(v) => (pair.value = v)} enter={enter} />
      )}
      <div class="inputs-buttons">
        <button type="submit" class="main" disabled={store.model.value === null}>
          Show attention
        </button>
        <button
          type="button"
          onClick={({ currentTarget: { form } }) => {
            pair.value = pair.value === null ? "" : null;
            // Once the field is there.
            setTimeout(() => form!.querySelector<HTMLElement>("label + label > textarea")?.focus());
          }}
        >
          {pair.value === null ? "Add a second text" : "Remove the second text"}
        </button>
        <label class="example">
          <span class="unseen">Examples</span>
          <select
            value=""
            onChange={({ currentTarget }) => {
              const example = EXAMPLES[Number(currentTarget.value)];
              currentTarget.value = "";
              if (example !== undefined) store.enter(example.text, example.pair);
            }}
          >
            <option value="">Examples…</option>
            {EXAMPLES.map(({ title }, i) => (
              <option key={title} value={i}>
                {title}
              </option>
            ))}
          </select>
        </label>
      </div>
    </form>
  );
}

/** A field for a text. Enter sends it. */
export function Area(props: { label: string; value: string; change: (value: string) => void; enter?: () => void }) {
  const lines = Math.min(4, Math.max(1, props.value.split("\n").length, Math.ceil(props.value.length / 90)));
  return (
    <label class="area">
      <span>{props.label}</span>
      <textarea
        rows={lines}
        value={props.value}
        placeholder="Enter a text"
        spellcheck={false}
        dir="auto"
        onInput={({ currentTarget }) => props.change(currentTarget.value)}
        onKeyDown={(event) => {
          // Enter sends, as in a search box; with Shift it breaks the line. While an input method composes, it is its own.
          if (!props.enter || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          props.enter();
        }}
      />
    </label>
  );
}
