/** What each word does to the score: on the texts, and for an exact sum as a matrix of the two texts' words. */

import { useMemo } from "preact/hooks";
import type { Subject } from "../../data/requests.js";
import { type Explanation, effectsOf, explainQuestion, type Json, questionKey, taskOf } from "../../data/why.js";
import { largestSize } from "../../drawing/diverging.js";
import { largest, signedText, weightText } from "../../drawing/numbers.js";
import { Choice } from "../../layout/Controls.js";
import { useStore } from "../../layout/context.js";
import { METHODS, UNITS } from "../../state/fields.js";
import { useSignal } from "../../state/signals.js";
import type { Cell } from "../maps/signedDrawing.js";
import { SignedMapFrame } from "../maps/signedMap.js";
import { ColourBar } from "./colourBar.js";
import { UnitText } from "./unitText.js";
import { useExplanation } from "./useExplanation.js";
import { Waiting } from "./waiting.js";

const SHOWN = 10;

export function Words({ subject, labelled }: { subject: Subject; labelled: number }) {
  const { loader, fields } = useStore();
  const { method, unit, label } = fields;
  const asked = { method: method.value, unit: unit.value, label: label.value, labelled };
  const question = explainQuestion(subject, asked);
  const loaded = useExplanation(question);
  return (
    <section aria-label="Words">
      <h2>What the {unit.value}s do to it</h2>
      {!loader.source.held && (
        <div class="view-tools">
          <Choice label="Method" of={method} names={named(METHODS)} />
          <Choice label="Unit" of={unit} names={named(UNITS)} />
        </div>
      )}
      {loaded.state === "ready" ? (
        <Answered key={questionKey(question)} subject={subject} answer={loaded.value} />
      ) : (
        <Waiting on={loaded} />
      )}
    </section>
  );
}

function named<T extends string>(values: readonly T[]): Record<T, string> {
  return Object.fromEntries(values.map((one) => [one, one === "auto" ? "automatic" : one])) as Record<T, string>;
}

function Answered({ subject, answer }: { subject: Subject; answer: Json }) {
  const found: Explanation = { ...answer["data"][0], method: answer["method"] };
  const { units, parts } = found;
  const first = parts?.length ?? 0;
  /** The unit that is pointed at in a text; of an exact sum the other text shows what it adds with this one. */
  const chosen = useSignal<number | null>(null);
  const one = parts === undefined ? null : chosen.value;
  const [row, column] = one === null ? [null, null] : one < first ? [one, null] : [null, one - first];
  const effects = Float32Array.from(effectsOf(found, row, column));
  const most = largestSize(Float32Array.from(effectsOf(found, null, null)));
  const mostOfOne = largestSize(Float32Array.from(parts?.flat() ?? []));
  return (
    <>
      <p class="note">{told(found, subject)}</p>
      <ColourBar most={most} />
      <div class={parts === undefined ? "" : "why-parts"}>
        <div>
          {[subject.text, subject.pair].map(
            (text, segment) =>
              text !== null && (
                <UnitText
                  key={segment}
                  label={subject.pair === null ? "Text" : segment === 0 ? "First text" : "Second text"}
                  text={text}
                  segment={segment}
                  units={units}
                  effects={effects}
                  // What one unit adds with each of the other text are cells of the matrix, which have its colours.
                  most={(segment === 0 ? column : row) === null ? most : mostOfOne}
                  chosen={chosen}
                />
              ),
          )}
          <Largest explanation={found} />
        </div>
        {parts !== undefined && (
          <div class="why-matrix">
            <ColourBar most={mostOfOne} />
            <Parts explanation={found} />
          </div>
        )}
      </div>
    </>
  );
}

/** What the numbers are, in a sentence. */
function told(found: Explanation, { model, pair, ablated }: Subject): string {
  const { method, score, label, replacement, baseline_scores } = found;
  const what = label === undefined ? taskOf(model) : `logit of ${label}`;
  const sum = `The ${what} is ${weightText(score)}. `;
  if (method === "parts") {
    return `${sum}It is the sum of all cells, each of one unit of the one text with one of the other. Point at a unit to see its row.`;
  }
  if (method === "occlusion") {
    const out = replacement === "remove" ? "left out" : "masked";
    return `${sum}Each number is what it loses if the unit is ${out}${pair === null ? "" : " in its text"}.`;
  }
  const whole = ablated.length > 0 ? " Gradients go through the model with all of its heads." : "";
  const [first, second] = baseline_scores!.map(weightText);
  const masked =
    second === undefined
      ? `With a mask in the place of each token it is ${first}; the numbers add up to the difference.`
      : `With masks in the place of the first text it is ${first}, of the second ${second}; each text's numbers add up to the difference.`;
  return `${sum}${masked}${whole}`;
}

function Parts({ explanation: { parts, units } }: { explanation: Explanation }) {
  const at = useSignal<Cell>([0, 0]);
  const map = useMemo(
    () => ({
      rows: units.text.slice(0, parts!.length),
      columns: units.text.slice(parts!.length),
      values: Float32Array.from(parts!.flat()),
    }),
    [parts, units],
  );
  return (
    <SignedMapFrame
      map={map}
      at={at}
      label="What each unit of the first text adds with each of the second: rows and columns"
      told={([row, column]) =>
        `${signedText(parts![row]![column]!)} from “${map.rows[row]}” with “${map.columns[column]}”`
      }
    />
  );
}

/** The largest numbers, as a table. */
function Largest({ explanation: { units, parts, attributions } }: { explanation: Explanation }) {
  const numbers = parts?.flat() ?? attributions!;
  const across = units.text.length - (parts?.length ?? 0);
  return (
    <table class="differences">
      <caption>The largest of them</caption>
      <thead>
        <tr>
          <th scope="col">{parts === undefined ? "Unit" : "First text"}</th>
          {parts !== undefined && <th scope="col">Second text</th>}
          <th scope="col" class="number">
            {parts === undefined ? "Effect" : "Part"}
          </th>
        </tr>
      </thead>
      <tbody>
        {largest(numbers.map(Math.abs), SHOWN).map((i) => (
          <tr key={i}>
            {parts === undefined ? (
              <td class="label">{units.text[i]}</td>
            ) : (
              <>
                <td class="label">{units.text[Math.floor(i / across)]}</td>
                <td class="label">{units.text[parts.length + (i % across)]}</td>
              </>
            )}
            <td class="number">{signedText(numbers[i]!)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
