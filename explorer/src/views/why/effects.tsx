/** The grid of heads by what the score loses without each; a click runs without it. */

import type { Subject } from "../../data/requests.js";
import { explainQuestion } from "../../data/why.js";
import { largestSize, signedLook } from "../../drawing/diverging.js";
import { cellText, signedText } from "../../drawing/numbers.js";
import { useStore } from "../../layout/context.js";
import type { HeadId } from "../../state/fields.js";
import { headName, sameHead } from "../../state/store.js";
import { HeadGrid } from "../headGrid.js";
import { ColourBar } from "./colourBar.js";
import { useExplanation } from "./useExplanation.js";
import { Waiting } from "./waiting.js";

export function Effects({ subject, labelled }: { subject: Subject; labelled: number }) {
  const store = useStore();
  const { loader, fields } = store;
  const { layers, heads } = subject.model;
  const free = !loader.source.held;
  const asked = { method: fields.method.value, unit: fields.unit.value, label: fields.label.value, labelled };
  const wanted = fields.effects.value === "on";
  const loaded = useExplanation(wanted ? explainQuestion(subject, asked, true) : null);
  const effects: number[][] | null = loaded?.state === "ready" ? loaded.value["data"][0].heads : null;
  const most = effects === null ? 0 : largestSize(Float32Array.from(effects.flat()));
  const pressed = (id: HeadId) => subject.ablated.some((other) => sameHead(other, id));
  const press = (id: HeadId): void => {
    if (!free) return;
    store.spoken.value = `Run ${pressed(id) ? "with" : "without"} ${headName(id)}.`;
    store.toggleAblated(id);
  };
  return (
    <section aria-label="Heads">
      <h2>Which heads it depends on</h2>
      <div class="view-tools">
        {free && (
          <button type="button" aria-pressed={wanted} onClick={() => (fields.effects.value = wanted ? "off" : "on")}>
            {wanted ? "Hide effects" : `Run without each of the ${layers * heads} heads`}
          </button>
        )}
        <p class="note">
          {effects === null ? "" : "Each number is what the score loses without the head. "}
          {free &&
            "Click a head to run without it: the score above, and all other views, are then those of that run."}
        </p>
      </div>
      {loaded !== null && loaded.state !== "ready" && (
        <Waiting on={loaded} told={`Running without each of the ${layers * heads} heads…`} />
      )}
      {effects !== null && <ColourBar most={most} />}
      <HeadGrid
        overview={subject.model}
        class="cell value"
        switches={{ pressed, press }}
        label={(id) => {
          const effect = effects === null ? "" : `, effect ${signedText(effects[id[0]]![id[1]]!)}`;
          return `${headName(id)}${effect}${pressed(id) ? ", ablated" : ""}`;
        }}
        cell={([layer, head]) => {
          const out = pressed([layer, head]);
          const effect = effects?.[layer]?.[head];
          const look = effect === undefined ? {} : signedLook(effect, most, store.dark.value, fields.scale.value);
          return (
            <span class={out ? "out" : ""} style={look}>
              {effect === undefined ? (out ? "off" : "·") : cellText(effect, most)}
            </span>
          );
        }}
      />
    </section>
  );
}
