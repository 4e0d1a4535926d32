/** What applies to every view: which weights, of what, in which heads, in which colours. */

import type { Signal } from "@preact/signals-core";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { headName, sameHead } from "../state/store.js";
import { useStore } from "./context.js";

const MOST_CHIPS = 6;
const WIDE = "(min-width: 40rem)";

export function Controls() {
  const store = useStore();
  const { fields } = store;
  // On phones these would push the text off the screen.
  const wide = useMemo(() => matchMedia(WIDE).matches, []);
  const rollout = fields.weights.value === "rollout";
  // A file holds weights of one kind.
  const free = !store.source.held;
  return (
    <section class="controls" aria-label="Controls">
      <HeadSteps />
      <Ablated free={free} />
      <details class="choices" open={wide}>
        <summary>Weights, level and colours</summary>
        <div>
          {free && <Kinds />}
          <Choice
            label="Colours"
            of={fields.colours}
            names={{ auto: "automatic", viridis: "viridis", cividis: "cividis", magma: "magma" }}
          />
          <Choice
            label="Scale"
            of={fields.scale}
            names={{ linear: "linear", sqrt: "square root", log: "logarithmic" }}
          />
        </div>
      </details>
      {rollout && <p class="note">Rollout follows all heads through layers 0 to {store.current.value[0]}.</p>}
    </section>
  );
}

/** The heads that the run is without, in every view. */
function Ablated({ free }: { free: boolean }) {
  const { fields, subject, toggleAblated } = useStore();
  const ablated = subject.value?.ablated ?? [];
  if (ablated.length === 0) return null;
  return (
    <span class="chips ablated">
      <span>Run without</span>
      {ablated.slice(0, MOST_CHIPS).map((id) => (
        <button
          type="button"
          class="chip"
          key={headName(id)}
          disabled={!free}
          title={`Run with ${headName(id)} again`}
          aria-label={`Run with ${headName(id)} again`}
          onClick={() => toggleAblated(id)}
        >
          {headName(id)} ×
        </button>
      ))}
      {ablated.length > MOST_CHIPS && <span class="note">and {ablated.length - MOST_CHIPS} more</span>}
      {free && (
        <>
          <button type="button" class="chip" onClick={() => (fields.view.value = "compare")}>
            Compare with before
          </button>
          <button type="button" class="chip" onClick={() => (fields.ablated.value = [])}>
            Restore all
          </button>
        </>
      )}
    </span>
  );
}

/** What weights are, and of what. */
function Kinds() {
  const store = useStore();
  const { fields } = store;
  return (
    <>
      <Choice
        label="Weights"
        of={fields.weights}
        names={{ probability: "probability", value_norm: "norm of values", score: "score", rollout: "rollout" }}
      />
      <Choice
        label="Level"
        of={fields.level}
        names={{ token: "tokens", word: "words" }}
        change={(level) => store.setLevel(level)}
      />
      <Choice
        label="Special tokens"
        of={fields.special}
        names={{ keep: "keep", drop: "drop", renormalize: "drop, renormalise" }}
      />
    </>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  of: Pick<Signal<T>, "value">;
  names: Record<T, string>;
  change?: (value: T) => void;
}

/** A field of the store with few values. */
export function Choice<T extends string>({ label, of, names, change }: ChoiceProps<T>) {
  return (
    <label>
      <span>{label}</span>
      <select
        value={of.value}
        onChange={({ currentTarget }) => {
          const value = currentTarget.value as T;
          if (change === undefined) of.value = value;
          else change(value);
        }}
      >
        {Object.entries<string>(names).map(([value, name]) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Steps through layers and heads, and the heads that are chosen besides. */
export function HeadSteps() {
  const store = useStore();
  const model = store.model.value;
  const [layer, head] = store.current.value;
  const others = store.heads.value.slice(0, -1);
  return (
    <div class="steps">
      <Step
        name="Layer"
        index={layer}
        count={model?.layers ?? 0}
        step={(by) => store.step(by, 0)}
        keys={["[", "]"]}
      />
      <Step name="Head" index={head} count={model?.heads ?? 0} step={(by) => store.step(0, by)} keys={[",", "."]} />
      {others.length > 0 && (
        <span class="chips">
          <span class="note">and</span>
          {others.slice(0, MOST_CHIPS).map((id) => (
            <button
              type="button"
              class="chip"
              key={headName(id)}
              title={`Take ${headName(id)} out`}
              aria-label={`Take ${headName(id)} out`}
              onClick={() => store.chooseHeads(store.heads.value.filter((other) => !sameHead(other, id)))}
            >
              {headName(id)} ×
            </button>
          ))}
          {others.length > MOST_CHIPS && <span class="note">and {others.length - MOST_CHIPS} more</span>}
          <button type="button" class="chip" onClick={() => store.chooseHeads([store.current.value])}>
            only {headName([layer, head])}
          </button>
        </span>
      )}
    </div>
  );
}

interface StepProps {
  name: string;
  index: number;
  count: number;
  step: (by: number) => void;
  keys: [string, string];
}

function Step({ name, index, count, step, keys }: StepProps): ComponentChildren {
  const low = name.toLowerCase();
  return (
    <fieldset class="step">
      <legend>{name}</legend>
      <button
        type="button"
        disabled={index <= 0}
        onClick={() => step(-1)}
        aria-label={`Previous ${low}`}
        title={`Previous ${low} (${keys[0]})`}
      >
        ‹
      </button>
      <output>{index}</output>
      <button
        type="button"
        disabled={index >= count - 1}
        onClick={() => step(1)}
        aria-label={`Next ${low}`}
        title={`Next ${low} (${keys[1]})`}
      >
        ›
      </button>
    </fieldset>
  );
}
