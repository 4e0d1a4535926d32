/** What a reranker or a classifier says of the input, which is what people ask them for: first, in every view. */

import type { Subject } from "../data/requests.js";
import { type Json, nothingToExplain, runQuestion, scoresOf, taskOf } from "../data/why.js";
import { weightText } from "../drawing/numbers.js";
import { useStore } from "./context.js";

/** Of many labels, the first. */
const SHOWN = 4;

export function Verdict({ subject }: { subject: Subject }) {
  const { loader, fields } = useStore();
  const task = taskOf(subject.model);
  if ((task !== "score" && task !== "label") || nothingToExplain(subject) !== null) return null;
  const run = (raw: boolean) => loader.answer<Json>(runQuestion(subject, subject.ablated, raw)).value;
  const loaded = [run(false), ...(task === "score" ? [run(true)] : [])];
  // A file may not have them.
  if (loaded.some(({ state }) => state === "failed")) return null;
  const scores = loaded.flatMap((one, i) =>
    one.state !== "ready"
      ? []
      : scoresOf(task, one.value, -1).map(([name, score]) => [i > 0 ? "logit" : name, score]),
  ) as [string, number][];
  return (
    <p class="verdict above">
      {scores.length === 0 && "…"}
      {scores.slice(0, SHOWN).map(([name, score]) => (
        <span key={name}>
          {name} <b>{weightText(score)}</b>
        </span>
      ))}
      {fields.view.value !== "why" && (
        <button type="button" class="link" onClick={() => (fields.view.value = "why")}>
          Why
        </button>
      )}
    </p>
  );
}
