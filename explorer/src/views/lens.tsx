/** The logit lens: the words that the model's own head reads out of the hidden states of each layer. */

import type { ReadonlySignal } from "@preact/signals-core";
import type { Overview } from "../data/overview.js";
import { ablation, inputsOf, type Subject, textFields } from "../data/requests.js";
import type { Json } from "../data/why.js";
import { place } from "../drawing/colours.js";
import { weightText } from "../drawing/numbers.js";
import { csvOf } from "../export/csv.js";
import { saveFile } from "../export/save.js";
import { Choice } from "../layout/Controls.js";
import { useStore } from "../layout/context.js";
import type { HeadId } from "../state/fields.js";
import { useSignal } from "../state/signals.js";
import { type Store, sameHead, within } from "../state/store.js";
import { Grid, numbers } from "./headGrid.js";
import { colouredBy } from "./ranking.js";
import { ScaleBar } from "./scaleBar.js";
import type { ViewProps } from "./view.js";
import { useExplanation } from "./why/useExplanation.js";
import { Waiting } from "./why/waiting.js";

/** Tokens that are asked for together: all of a long text would take many seconds. */
const TOGETHER = 64;
/** The height of the bar that repeats the largest probability, in pixels. */
const BAR = 4;

/** A hidden state of a token: its layer, of which 0 are the embeddings, and the position in the input. */
type Place = HeadId;

export function LensView({ overview }: ViewProps) {
  const store = useStore();
  const { model } = overview.subject;
  const predicts = ({ prediction }: Subject["model"]) => prediction?.kind === "masked_words";
  if (predicts(model)) return <Lens overview={overview} />;
  const names = store.models.value.filter(predicts).map(({ name }) => name);
  return (
    <p class="note">
      {`The logit lens needs a model that predicts masked words, and ${model.name} does not: `}
      {names.length > 0 ? `choose ${names.join(" or ")}.` : "serve one whose architecture ends in MaskedLM."}
    </p>
  );
}

function Lens({ overview }: ViewProps) {
  const store = useStore();
  const { subject, tokens } = overview;
  const [layer, position] = chosenIn(store, overview);
  const start = position - (position % TOGETHER);
  const positions = numbers(Math.min(TOGETHER, tokens - start)).map((i) => start + i);
  const asked = { outputs: ["logit_lens"], layers: "all", positions, ...textFields(subject), ...ablation(subject) };
  const loaded = useExplanation({ path: "/encode", body: { inputs: inputsOf(subject), ...asked } });
  const parts = numbers(Math.ceil(tokens / TOGETHER)).map((part) => part * TOGETHER);
  return (
    <>
      <div class="view-tools">
        {parts.length > 1 && (
          <Choice
            label="Tokens"
            of={{ value: String(start) }}
            names={Object.fromEntries(
              parts.map((part) => [part, `${part} to ${Math.min(part + TOGETHER, tokens) - 1}`]),
            )}
            change={(part) => (store.fields.lens.value = [layer, Number(part)])}
          />
        )}
        {loaded.state === "ready" && (
          <button type="button" onClick={() => saveFile(tableOf(loaded.value["data"][0]), "headlight-lens.csv")}>
            Save as CSV
          </button>
        )}
        <p class="note">
          The most probable word after each layer (emb: before the first), as the model’s own head reads it. Point at
          a cell for more words, click it to keep them.
        </p>
      </div>
      {loaded.state === "ready" ? (
        <Words key={start} item={loaded.value["data"][0]} at={[layer, position]} />
      ) : (
        <Waiting on={loaded} />
      )}
    </>
  );
}

/** What is chosen; before that the last state of a mask, else of the pinned token or the first. */
function chosenIn(store: Store, overview: Overview): Place {
  const { units, tokens, layers } = overview;
  const [layer, position] = store.fields.lens.value ?? [layers];
  const mask = units.find(({ token }) => /^\Wmask\W$/i.test(token));
  const unit = mask ?? units[store.pinnedIn(overview)[0] ?? 0];
  return [within(layer, layers + 1), within(position ?? unit?.first ?? 0, tokens)];
}

/** The grid, and the words of the cell that is pointed at, or else of the chosen one. */
function Words({ item: { tokens, logit_lens: lens }, at }: { item: Json; at: Place }) {
  const store = useStore();
  const pointed = useSignal<Place | null>(null);
  const [start] = lens.positions;
  const placed = ([row, column]: Place): Place => [row, start + column];
  return (
    <div class="heads-view lens">
      <div>
        <Grid
          label="Most probable words, a row for each layer"
          class="cell value"
          rows={lens.layers.map(nameOf)}
          columns={lens.positions.map((position: number) => tokens[position])}
          first={[at[0], at[1] - start]}
          point={(id) => (pointed.value = id && placed(id))}
          cell={(id) => {
            const [row, column] = id;
            const word = lens.tokens[row][column][0];
            const probability = lens.probabilities[row][column][0];
            const share = place(probability, 0, 1, store.fields.scale.value);
            const look = colouredBy(store, share);
            return {
              "aria-pressed": sameHead(placed(id), at),
              "aria-label": `${nameOf(row)}, ${tokens[start + column]}: ${word} ${weightText(probability)}`,
              onClick: () => (store.fields.lens.value = placed(id)),
              children: (
                <span style={{ ...look, boxShadow: `inset 0 ${-Math.round(BAR * share)}px 0 0 ${look.color}` }}>
                  {word || "–"}
                </span>
              ),
            };
          }}
        />
        <ScaleBar range={[0, 1]} texts />
      </div>
      <Listed tokens={tokens} lens={lens} at={at} pointed={pointed} />
    </div>
  );
}

interface ListedProps {
  readonly tokens: readonly string[];
  readonly lens: Json;
  readonly at: Place;
  readonly pointed: ReadonlySignal<Place | null>;
}

/** The most probable words of a hidden state. */
function Listed({ tokens, lens, at, pointed }: ListedProps) {
  const [layer, position] = pointed.value ?? at;
  const [words, logits, probabilities] = ["tokens", "logits", "probabilities"].map(
    (name) => lens[name][layer][position - lens.positions[0]],
  );
  return (
    <aside class="row-table">
      <table>
        <caption>
          <span>
            {nameOf(layer)} at <strong>“{tokens[position]}”</strong>
          </span>
          <span class="faint">position {position}</span>
        </caption>
        <thead>
          <tr>
            <th scope="col">Word</th>
            <th scope="col" class="number">
              Logit
            </th>
            <th scope="col" class="number">
              Probability
            </th>
          </tr>
        </thead>
        <tbody>
          {words.map((word: string, i: number) => (
            <tr key={i}>
              <td class="label" dir="auto" title={word}>
                {word}
              </td>
              <td class="number">{weightText(logits[i])}</td>
              <td class="number">{weightText(probabilities[i])}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </aside>
  );
}

/** What a hidden state comes after. */
function nameOf(layer: number): string {
  return layer === 0 ? "emb" : `L${layer - 1}`;
}

/** All words with all digits, and hidden states by their numbers in the API. */
function tableOf({ tokens, logit_lens: lens }: Json): Blob {
  const rows = lens.layers.flatMap((layer: number) =>
    lens.positions.flatMap((position: number, column: number) =>
      lens.tokens[layer][column].map((word: string, rank: number) => [
        layer,
        position,
        tokens[position],
        rank + 1,
        word,
        ...["token_ids", "logits", "probabilities"].map((name) => lens[name][layer][column][rank]),
      ]),
    ),
  );
  const titles = ["hidden_state", "position", "token", "rank", "word", "word_id", "logit", "probability"];
  return new Blob([csvOf([titles, ...rows])], { type: "text/csv" });
}
