/** How similar the entered texts are to each other, by their sentence vectors. */

import { ablation, textFields } from "../data/requests.js";
import { taskOf } from "../data/why.js";
import { weightText } from "../drawing/numbers.js";
import { useStore } from "../layout/context.js";
import { sentence } from "../layout/Problems.js";
import type { ViewProps } from "./view.js";

/** Of a long text, what its row begins with. */
const SHOWN_CHARACTERS = 80;

/** (texts, texts), by the model's own function. */
interface Similarities {
  readonly function: string;
  readonly similarities: readonly (readonly number[])[];
}

/** A row for every two of the texts: those of the pair, and those of the comparison. */
export function SimilarityTable({ overview: { subject } }: ViewProps) {
  const { fields, loader } = useStore();
  const entered = [subject.text, subject.pair, fields.besideText.value, fields.besidePair.value];
  const texts = [...new Set(entered)].filter((text) => text !== null && text !== "") as string[];
  // What other models say of two texts stands above every view.
  if (texts.length < 2 || taskOf(subject.model) !== "similarity" || loader.source.held) return null;
  const body = { texts, ...textFields(subject), ...ablation(subject) };
  const loaded = loader.answer<Similarities>({ path: "/similarity", body }).value;
  if (loaded.state === "loading") return <p class="note">Loading…</p>;
  if (loaded.state === "failed") return <p class="problem">{sentence(loaded.error)}</p>;
  const { function: measure, similarities } = loaded.value;
  return (
    <table class="similarities">
      <caption>
        <strong>Similarities of the texts</strong>
        <span class="note">
          {" "}
          {measure} of the sentence vectors of {subject.model.name}
        </span>
      </caption>
      <thead>
        <tr>
          <th scope="col">Text</th>
          <th scope="col">Other text</th>
          <th scope="col" class="number">
            Similarity
          </th>
        </tr>
      </thead>
      <tbody>
        {texts.flatMap((text, i) =>
          texts.slice(i + 1).map((other, j) => (
            <tr key={`${i} ${j}`}>
              <td class="label">{shortened(text)}</td>
              <td class="label">{shortened(other)}</td>
              <td class="number">{weightText(similarities[i]![i + 1 + j]!)}</td>
            </tr>
          )),
        )}
      </tbody>
    </table>
  );
}

export function shortened(text: string): string {
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS).trimEnd()}…` : text;
}
