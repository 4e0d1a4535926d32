/** Why the model says what it says: its score first, then the words and the heads that make it. */

import type { Subject } from "../../data/requests.js";
import { type Json, labelledToken, nothingToExplain, runQuestion, taskOf } from "../../data/why.js";
import { useStore } from "../../layout/context.js";
import { Effects } from "./effects.js";
import { Scores } from "./scores.js";
import { Waiting } from "./waiting.js";
import { Words } from "./words.js";

export function WhyView() {
  const shown = useStore().subject.value;
  if (shown === null) return null;
  const nothing = nothingToExplain(shown);
  return nothing === null ? <Explained subject={shown} /> : <p class="note">{nothing}</p>;
}

function Explained({ subject }: { subject: Subject }) {
  const { loader, fields } = useStore();
  const tagged = taskOf(subject.model) === "token";
  const before = loader.answer<Json>(runQuestion(subject, [])).value;
  if (before.state !== "ready") return <Waiting on={before} />;
  const labelled = !tagged || fields.labelled.value >= 0 ? fields.labelled.value : labelledToken(before.value);
  return (
    <div class="why-view">
      <Scores subject={subject} before={before.value} labelled={labelled} />
      <Words subject={subject} labelled={labelled} />
      <Effects subject={subject} labelled={labelled} />
    </div>
  );
}
