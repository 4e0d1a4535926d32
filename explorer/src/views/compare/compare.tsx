/** A second text or a second model beside the first, in any of the other views, and the difference of their maps. */

import { batch, useSignal, useSignalEffect } from "@preact/signals";
import type { Overview } from "../../data/overview.js";
import { keyOf } from "../../data/requests.js";
import { Choice } from "../../layout/Controls.js";
import { StoreContext, useStore } from "../../layout/context.js";
import { Area } from "../../layout/Inputs.js";
import { sentence } from "../../layout/Problems.js";
import { headName, type Store } from "../../state/store.js";
import { Cut } from "../cut.js";
import { SINGLE_VIEWS } from "../single.js";
import type { ViewProps } from "../view.js";
import { DifferenceView } from "./difference.js";
import { nothingBeside, useOther } from "./other.js";

const SHOWN = Object.fromEntries([
  ...SINGLE_VIEWS.map(({ name, title }) => [name, title]),
  ["difference", "Difference"],
]);

export function CompareView({ overview }: ViewProps) {
  const store = useStore();
  const other = useOther(store);
  const { besideView } = store.fields;
  const nothing = nothingBeside(store) && overview.subject.ablated.length === 0;
  return (
    <div class="compare-view">
      <Entry store={store} />
      {nothing ? (
        <p class="note">Enter another text, or choose another model: both are shown side by side.</p>
      ) : (
        <>
          <div class="view-tools">
            <Choice label="Show" of={besideView} names={SHOWN} />
          </div>
          <Both overview={overview} other={other} />
        </>
      )}
    </div>
  );
}

/** What stands beside. */
function Entry({ store }: { store: Store }) {
  const { fields } = store;
  const text = useSignal("");
  const pair = useSignal("");
  useSignalEffect(() => {
    text.value = fields.besideText.value ?? fields.text.value;
    pair.value = fields.besidePair.value ?? fields.pair.value ?? "";
  });
  const enter = (): void => {
    batch(() => {
      fields.besideText.value = text.value === fields.text.value ? null : text.value;
      fields.besidePair.value = pair.value === (fields.pair.value ?? "") ? null : pair.value;
    });
  };
  const paired = fields.pair.value !== null;
  return (
    <form
      class="inputs compare-entry"
      onSubmit={(event) => {
        event.preventDefault();
        enter();
      }}
    >
      <Area label="Compare with" value={text.value} change={(v) => (text.value = v)} enter={enter} />
      {paired && <Area label="and" value={pair.value} change={(v) => (pair.value = v)} enter={enter} />}
      <div class="inputs-buttons">
        <label>
          <span class="unseen">Model to compare with</span>
          <select
            value={fields.besideModel.value ?? ""}
            onChange={({ currentTarget: { value } }) => {
              fields.besideModel.value = value === "" ? null : value;
            }}
          >
            <option value="">the same model</option>
            {store.models.value
              .filter(({ name }) => name !== store.model.value?.name)
              .map(({ name }) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
          </select>
        </label>
        <button type="submit">Compare</button>
      </div>
    </form>
  );
}

function Both({ overview, other }: { overview: Overview; other: Store }) {
  const { besideView } = useStore().fields;
  const loaded = other.overview.value;
  if (loaded?.state === "failed") return <p class="problem">{sentence(loaded.error)}</p>;
  if (loaded?.state !== "ready") return <p class="note">Loading…</p>;
  // What a view computes follows signals, and so not another overview: that takes another view.
  const [one, two] = [overview.subject, loaded.value.subject].map(keyOf);
  if (besideView.value === "difference") {
    return <DifferenceView first={overview} second={loaded.value} key={`${one} ${two}`} />;
  }
  const { View, name } = SINGLE_VIEWS.find((entry) => entry.name === besideView.value) ?? SINGLE_VIEWS[0]!;
  return (
    <div class="sides">
      <section class="view side" aria-label="First">
        <h2>{sideName(overview)}</h2>
        <View overview={overview} key={`${name} ${one}`} />
      </section>
      <StoreContext.Provider value={other}>
        <section class="view side" aria-label="Second">
          <h2>{sideName(loaded.value)}</h2>
          <Cut overview={loaded.value} />
          <View overview={loaded.value} key={`${name} ${two}`} />
        </section>
      </StoreContext.Provider>
    </div>
  );
}

function sideName({ subject: { model, ablated }, tokens }: Overview): string {
  const without = ablated.length > 0 ? `, without ${ablated.map(headName).join(", ")}` : "";
  return `${model.name}, ${tokens.toLocaleString("en")} tokens${without}`;
}
