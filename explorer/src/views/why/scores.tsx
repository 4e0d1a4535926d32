/** What the model says of the input, before and without the ablated heads. */

import type { ComponentChildren } from "preact";
import type { Subject } from "../../data/requests.js";
import { type Json, runQuestion, scoresOf, taskOf } from "../../data/why.js";
import { signedText, weightText } from "../../drawing/numbers.js";
import { useStore } from "../../layout/context.js";
import { headName } from "../../state/store.js";
import { Waiting } from "./waiting.js";

/** Of many labels, the first. */
const SHOWN = 10;
const TITLES = { similarity: "Similarity", score: "Score", label: "Labels", token: "Label of a token" } as const;

interface ScoresProps {
  readonly subject: Subject;
  /** What the service says of the whole run. */
  readonly before: Json;
  /** The position of the token that is explained, of a model that labels tokens. */
  readonly labelled: number;
}

export function Scores({ subject, before, labelled }: ScoresProps) {
  const { loader, fields } = useStore();
  const { ablated, model } = subject;
  const task = taskOf(model);
  const run = (raw: boolean) => loader.answer<Json>(runQuestion(subject, ablated, raw)).value;
  const after = run(false);
  const logits = task === "score" ? [loader.answer<Json>(runQuestion(subject, [], true)).value, run(true)] : [];
  const rows = scoresOf(task, before, labelled).slice(0, SHOWN);
  const then = after.state === "ready" ? new Map(scoresOf(task, after.value, labelled)) : null;
  const [logit, logitThen] = logits.map((one) => (one.state === "ready" ? one.value["data"][0].score : Number.NaN));
  const changed = ablated.length > 0;
  const explained = fields.label.value ?? rows[0]![0];
  return (
    <section class="why-scores" aria-label={TITLES[task]}>
      {task === "token" && <Token before={before} labelled={labelled} />}
      <div class="scroll">
        <table>
          <caption>
            <strong>{TITLES[task]}</strong> <span class="note">{model.name}</span>
          </caption>
          <thead>
            <tr>
              <td />
              <th scope="col" class="number">
                {changed ? "Before" : "Score"}
              </th>
              {changed && (
                <>
                  <th scope="col" class="number">
                    {`Without ${ablated.length === 1 ? headName(ablated[0]!) : `${ablated.length} heads`}`}
                  </th>
                  <th scope="col" class="number">
                    Change
                  </th>
                </>
              )}
              <td />
            </tr>
          </thead>
          <tbody>
            {rows.map(([name, score]) => (
              <Row key={name} name={name} before={score} after={changed ? (then?.get(name) ?? Number.NaN) : null}>
                {task === "label" && name !== explained && (
                  <button type="button" class="quiet" onClick={() => (fields.label.value = name)}>
                    Explain {name}
                  </button>
                )}
                {task === "label" && name === explained && <span class="note">explained below</span>}
              </Row>
            ))}
            {task === "score" && <Row name="logit" before={logit} after={changed ? logitThen : null} />}
          </tbody>
        </table>
      </div>
      {changed && after.state !== "ready" && <Waiting on={after} />}
    </section>
  );
}

interface RowProps {
  readonly name: string;
  readonly before: number;
  /** Null if no head is ablated. */
  readonly after: number | null;
  readonly children?: ComponentChildren;
}

function Row({ name, before, after, children }: RowProps) {
  return (
    <tr>
      <th scope="row">{name}</th>
      <td class="number">{weightText(before)}</td>
      {after !== null && (
        <>
          <td class="number">{weightText(after)}</td>
          <td class="number">{signedText(after - before)}</td>
        </>
      )}
      <td>{children}</td>
    </tr>
  );
}

/** Chooses the token whose label is explained. */
function Token({ before, labelled }: { before: Json; labelled: number }) {
  const { fields } = useStore();
  const [{ tokens, token_labels }] = before["data"];
  return (
    <label class="view-tools">
      <span>Token</span>
      <select
        value={labelled}
        onChange={({ currentTarget }) => {
          fields.labelled.value = Number(currentTarget.value);
        }}
      >
        {(tokens as string[]).map((token, i) => (
          <option key={i} value={i}>
            {token} – {token_labels[i]}
          </option>
        ))}
      </select>
    </label>
  );
}
