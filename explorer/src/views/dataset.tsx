/** All heads over a list of texts: the means of their statistics, and the texts where a head has most of one. */

import { batch } from "@preact/signals";
import { DatasetRun, fieldsOf, linesOf } from "../data/dataset.js";
import { countText } from "../drawing/numbers.js";
import { STATISTICS, type StatisticEntry } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import { Area } from "../layout/Inputs.js";
import { sentence } from "../layout/Problems.js";
import type { HeadId } from "../state/fields.js";
import { headName } from "../state/store.js";
import { StatisticChoice } from "./heads.js";
import { Ranked, RatedGrid } from "./ranking.js";
import { shortened } from "./similarities.js";
import { HeadsTable } from "./table.js";
import type { ViewProps } from "./view.js";

const MOST_BYTES = 16 << 20;

export function DatasetView({ overview: { subject } }: ViewProps) {
  const store = useStore();
  const run = store.run.value;
  const running = run?.ended.value === false;
  const lines = linesOf(store.list.value);
  const start = async (): Promise<void> => {
    const next = new DatasetRun(store.subject.peek() ?? subject, lines);
    store.run.value = next;
    await next.run(store.source, store.info.peek()!.limits.max_inputs);
    if (next.error !== null) store.loader.failed(next.error);
    store.spoken.value = countText(next.found.length, "text");
  };
  const read = async ({ currentTarget: { files } }: { currentTarget: HTMLInputElement }): Promise<void> => {
    store.list.value = (await files?.[0]?.slice(0, MOST_BYTES).text()) ?? "";
  };
  return (
    <>
      <div class="inputs">
        <Area label="Texts, one in each line" value={store.list.value} change={(list) => (store.list.value = list)} />
        <div class="inputs-buttons">
          <button
            type="button"
            class="main"
            disabled={lines.length === 0 && !running}
            onClick={running ? () => run.stop() : start}
          >
            {running ? "Stop" : `Run ${countText(lines.length, "text")}`}
          </button>
          <label>
            <span>or a file</span>
            <input type="file" accept=".txt" onChange={read} />
          </label>
        </div>
      </div>
      {run !== null && <Result run={run} fields={JSON.stringify(fieldsOf(subject))} />}
    </>
  );
}

function Result({ run, fields }: { run: DatasetRun; fields: string }) {
  const store = useStore();
  const done = run.done.value;
  const { found, refused, subject, error } = run;
  const { model } = subject;
  const indexOf = ([layer, head]: HeadId): number => layer * model.heads + head;
  const shown = STATISTICS.find(({ name }) => name === store.fields.cells.value) ?? STATISTICS[0]!;
  const columns = STATISTICS.map((entry) => ({
    ...entry,
    rate: (id: HeadId) => run.momentsOf(entry.name, indexOf(id))[0],
    spread: (id: HeadId) => run.momentsOf(entry.name, indexOf(id))[1],
  }));
  const { rate } = columns[STATISTICS.indexOf(shown)]!;
  return (
    <>
      <p class="note">
        <progress value={done} max={run.lines.length} aria-label="Texts" />{" "}
        {`${done} of ${countText(run.lines.length, "text")}, ${model.name}.`}
        {fields !== JSON.stringify(fieldsOf(subject)) && " What is chosen above has changed since: run them again."}
      </p>
      {error !== null && <p class="problem">{sentence(error)}</p>}
      {refused.map(({ line, error: why }) => (
        <p class="problem" key={line}>
          Line {line}: {sentence(why)}
        </p>
      ))}
      {found.length > 0 && (
        <>
          <div class="heads-view">
            <div>
              <div class="view-tools">
                <StatisticChoice label="Mean of" value={shown.name} />
                <p class="note">{shown.told}</p>
              </div>
              <RatedGrid overview={model} rate={rate} title={`mean ${shown.title.toLowerCase()}`} />
            </div>
            <div>
              <RankedTexts run={run} shown={shown} sign={-1} />
              <RankedTexts run={run} shown={shown} sign={1} />
            </div>
          </div>
          <HeadsTable overview={model} columns={columns} />
        </>
      )}
    </>
  );
}

/** The texts where the current head has most of a statistic, or least; a click shows one in the other views. */
function RankedTexts({ run, shown, sign }: { run: DatasetRun; shown: StatisticEntry; sign: 1 | -1 }) {
  const store = useStore();
  const id = store.headsOf(run.subject.model).at(-1)!;
  const rated = run.found.map((one) => ({ ...one, value: one.summary[shown.name].at(...id) }));
  rated.sort((a, b) => sign * (a.value - b.value));
  const rows = rated.map(({ line, text, value }) => ({
    number: line,
    name: shortened(text),
    value,
    open: () =>
      batch(() => {
        store.enter(text, null);
        store.chooseHeads([id]);
        store.fields.view.value = "text";
      }),
  }));
  return (
    <Ranked title={`${sign < 0 ? "Most" : "Least"} ${shown.title.toLowerCase()} in ${headName(id)}`} rows={rows} />
  );
}
