/** All heads over a list of texts: the means of their statistics, and the texts where a head has most of one. */

import { batch } from "@preact/signals-core";
import { DatasetRun, fieldsOf, linesOf, MOST_TEXTS } from "../data/dataset.js";
import { countText } from "../drawing/numbers.js";
import { STATISTICS, type StatisticEntry } from "../drawing/statistics.js";
import { useStore } from "../layout/context.js";
import { Area } from "../layout/Inputs.js";
import { sentence } from "../layout/Problems.js";
import type { HeadId } from "../state/fields.js";
import { headName } from "../state/store.js";
import { Ranked, RatedGrid } from "./ranking.js";
import { shortened } from "./similarities.js";
import { HeadsTable, orderOf } from "./table.js";
import type { ViewProps } from "./view.js";

const MOST_BYTES = 4 << 20;

export function DatasetView({ overview }: ViewProps) {
  const store = useStore();
  const { list, cutFile, run, source } = store;
  const subject = store.subject.value ?? overview.subject;
  const now = run.value;
  const running = now?.ended.value === false;
  const all = linesOf(list.value);
  const lines = all.slice(0, MOST_TEXTS);
  const enter = (texts: string, cut: boolean): void => {
    list.value = texts;
    cutFile.value = cut;
  };
  const start = async (): Promise<void> => {
    const next = new DatasetRun(subject, lines);
    run.value = next;
    await next.run(source);
    store.spoken.value = countText(next.found.length, "text");
    if (next.error !== null) store.loader.failed(next.error);
  };
  return (
    <>
      <div class="inputs">
        <Area label="Texts, one in each line" value={list.value} change={(texts) => enter(texts, false)} />
        <div class="inputs-buttons">
          <button
            type="button"
            class="main"
            disabled={!running && lines.length === 0}
            onClick={() => (running ? now.stop() : start())}
          >
            {running ? "Stop" : `Run ${countText(lines.length, "text")}`}
          </button>
          <input
            type="file"
            accept=".txt"
            aria-label="A file of texts"
            onChange={async ({ currentTarget: { files } }) => {
              const [file] = files!;
              enter(await file!.slice(0, MOST_BYTES).text(), file!.size > MOST_BYTES);
            }}
          />
        </div>
      </div>
      {(cutFile.value || all.length > MOST_TEXTS) && (
        <p class="note cut">
          {cutFile.value && "Of the file only the first 4 MiB were read. "}
          {all.length > MOST_TEXTS && `Of ${countText(all.length, "text")} only the first 5,000 run.`}
        </p>
      )}
      {now !== null && (
        <>
          <label class="progress note">
            <progress value={now.done.value} max={now.lines.length} />{" "}
            {`${now.done.value} of ${countText(now.lines.length, "text")}, ${now.subject.model.name}.`}
            {JSON.stringify(fieldsOf(subject)) !== JSON.stringify(fieldsOf(now.subject)) &&
              " Choices have changed since."}
          </label>
          {now.error !== null && <p class="problem">{sentence(now.error)}</p>}
          {now.refused.map(({ line, error }) => (
            <p class="problem" key={line}>
              Line {line}: {sentence(error)}
            </p>
          ))}
          {now.found.length > 0 && <Result run={now} />}
        </>
      )}
    </>
  );
}

function Result({ run }: { run: DatasetRun }) {
  const { model } = run.subject;
  // The sums change with it.
  run.done.value;
  const columns = STATISTICS.map((entry) => {
    const of = ([layer, head]: HeadId) => run.momentsOf(entry.name, layer * model.heads + head);
    return { ...entry, rate: (id: HeadId) => of(id)[0], spread: (id: HeadId) => of(id)[1] };
  });
  const [by = columns[0]!] = orderOf(useStore(), columns);
  return (
    <>
      <div class="heads-view">
        <RatedGrid {...by} overview={model} title={`mean ${by.title.toLowerCase()}`} />
        <RankedTexts run={run} of={by} />
      </div>
      <p class="note">Means over the texts, ± standard deviation.</p>
      <HeadsTable overview={model} columns={columns} />
    </>
  );
}

/** The texts where the current head has most of a statistic, and least; a click shows one in the other views. */
function RankedTexts({ run, of }: { run: DatasetRun; of: StatisticEntry }) {
  const store = useStore();
  const id = store.headsOf(run.subject.model).at(-1)!;
  const rows = run.found.map(({ line, text, summary }) => ({
    number: line,
    name: shortened(text),
    value: summary[of.name].at(...id),
    open: () =>
      batch(() => {
        store.enter(text, null);
        store.chooseHeads([id]);
        store.fields.view.value = "text";
      }),
  }));
  rows.sort((a, b) => a.value - b.value);
  const title = `${of.title.toLowerCase()} in ${headName(id)}`;
  return (
    <div>
      <Ranked title={`Most ${title}`} rows={[...rows].reverse()} />
      <Ranked title={`Least ${title}`} rows={rows} />
    </div>
  );
}
