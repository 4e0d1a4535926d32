/** A second text or a second model beside the first, in any of the other views, and the difference of their maps. */

import { batch } from "@preact/signals-core";
import type { Overview } from "../../data/overview.js";
import { keyOf } from "../../data/requests.js";
import { Choice, HeadSteps } from "../../layout/Controls.js";
import { StoreContext, useStore } from "../../layout/context.js";
import { Area } from "../../layout/Inputs.js";
import { sentence } from "../../layout/Problems.js";
import { useSignal, useSignalEffect } from "../../state/signals.js";
import { headName, type Store } from "../../state/store.js";
import { Cut } from "../cut.js";
import { SINGLE_VIEWS } from "../single.js";
import type { ViewProps } from "../view.js";
import { sameTokens } from "./align.js";
import { DifferenceView } from "./difference.js";
import { namedHead } from "./distances.js";
import { type Beside, nothingBeside, useOther } from "./other.js";

const SHOWN = Object.fromEntries([
  ...SINGLE_VIEWS.map(({ name, title }) => [name, title]),
  ["difference", "Difference"],
]);

export function CompareView({ overview }: ViewProps) {
  const store = useStore();
  const beside = useOther(store);
  const { besideView, besideHead } = store.fields;
  const nothing = nothingBeside(store) && overview.subject.ablated.length === 0 && besideHead.value === "same";
  return (
    <div class="compare-view">
      <Entry store={store} empty={nothing} />
      <div class="view-tools">
        <Choice label="Show" of={besideView} names={SHOWN} />
        <HeadBeside beside={beside} />
        <Alignments beside={beside} />
      </div>
      {nothing ? (
        <p class="note">Enter another text, or choose another model or head: both are shown side by side.</p>
      ) : (
        <Both overview={overview} beside={beside} />
      )}
    </div>
  );
}

/** Which head stands beside the current one. */
function HeadBeside({ beside: { other, distances } }: { beside: Beside }) {
  const { fields } = useStore();
  const { besideHead, besideHeads } = fields;
  const { problem, layers, found } = distances.value;
  const searching = besideHead.value === "similar" && typeof problem !== "string" && found.length < layers;
  return (
    <>
      <Choice
        label="Head beside"
        of={besideHead}
        names={{ same: "of the same number", similar: "the most similar", own: "any" }}
        change={(mode) =>
          batch(() => {
            if (mode === "own") besideHeads.value = other.heads.peek();
            besideHead.value = mode;
          })
        }
      />
      {besideHead.value === "own" && (
        <StoreContext.Provider value={other}>
          <HeadSteps />
        </StoreContext.Provider>
      )}
      {searching && <progress max={layers} value={found.length} aria-label="Layers compared" />}
      {besideHead.value === "similar" && typeof problem === "string" && <p class="note">{problem}</p>}
    </>
  );
}

/** How tokens are aligned, where there is a choice. */
function Alignments({ beside: { both } }: { beside: Beside }) {
  const { besideAlign } = useStore().fields;
  if (both.value === null) return null;
  const { first, second, aligned } = both.value;
  const choice = besideAlign.value === "words" || (aligned.byPlace && !sameTokens(first.kept, second.kept));
  return choice ? (
    <Choice label="Tokens are aligned" of={besideAlign} names={{ auto: "by place", words: "by what is the same" }} />
  ) : null;
}

/** What stands beside. */
function Entry({ store, empty }: { store: Store; empty: boolean }) {
  const { fields } = store;
  // From the first frame on, because it may be selected before effects run.
  const text = useSignal(fields.besideText.peek() ?? fields.text.peek());
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
      class={`inputs compare-entry${empty ? " empty" : ""}`}
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

function Both({ overview, beside: { other, both, distances } }: ViewProps & { beside: Beside }) {
  const store = useStore();
  const { besideView } = store.fields;
  const loaded = other.overview.value;
  if (loaded?.state === "failed") return <p class="problem">{sentence(loaded.error)}</p>;
  if (loaded?.state !== "ready") return <p class="note">Loading…</p>;
  // What a view computes follows signals, and so not another overview: that takes another view.
  const [one, two] = [overview.subject, loaded.value.subject].map(keyOf);
  if (besideView.value === "difference") {
    if (both.value === null) return <p class="note">Loading…</p>;
    const key = `${one} ${two} ${both.value.aligned.byPlace}`;
    return <DifferenceView both={both.value} other={other} distances={distances} key={key} />;
  }
  const { View, name } = SINGLE_VIEWS.find((entry) => entry.name === besideView.value) ?? SINGLE_VIEWS[0]!;
  return (
    <div class="sides">
      <section class="view side" aria-label="First">
        <h2>{sideName(overview, store)}</h2>
        <View overview={overview} key={`${name} ${one}`} />
      </section>
      <StoreContext.Provider value={other}>
        <section class="view side" aria-label="Second">
          <h2>{sideName(loaded.value, other)}</h2>
          <Cut overview={loaded.value} />
          <View overview={loaded.value} key={`${name} ${two}`} />
        </section>
      </StoreContext.Provider>
    </div>
  );
}

function sideName(overview: Overview, store: Store): string {
  const { subject, tokens } = overview;
  const without = subject.ablated.length > 0 ? `, without ${subject.ablated.map(headName).join(", ")}` : "";
  const heads = store.headsOf(overview);
  const named =
    heads.length === 1 ? namedHead(overview, heads[0]!) : `${heads.length} heads of ${subject.model.name}`;
  return `${named}, ${tokens.toLocaleString("en")} tokens${without}`;
}
