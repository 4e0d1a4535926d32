/** A query beside the keys of a head, component by component, as BertViz's neuron view has them. */

import type { AttentionMaps } from "../../../../client/js/src/index.js";
import { largestSize } from "../../drawing/diverging.js";
import { largest, signedText, weightText } from "../../drawing/numbers.js";
import { useStore } from "../../layout/context.js";
import { useSignal } from "../../state/signals.js";
import { RowTable } from "../rowTable.js";
import type { ViewProps } from "../view.js";
import { Waiting } from "../why/waiting.js";
import type { Cell, SignedMap } from "./signedDrawing.js";
import { SignedMapFrame } from "./signedMap.js";

/** Of longer inputs the keys with the largest scores. */
const MOST = 128;
const HIGH = 18;
const TITLES = ["key", "query × key", "score", "weight"];

export function NeuronView({ overview }: ViewProps) {
  const store = useStore();
  const [layer, head] = store.headsOf(overview).at(-1)!;
  const query = store.sourcesIn(overview)[0] ?? 0;
  const loaded = store.loader.part(overview.subject, {
    layers: [layer],
    heads: [head],
    queries: [query],
    outputs: ["query", "key"],
    weights: "score",
    aggregate: "none",
    special_tokens: "keep",
    renormalize: false,
    dtype: "float32",
  }).value;
  if (loaded.state !== "ready") return <Waiting on={loaded} />;
  return (
    <div class="difference">
      <Strips key={`${layer} ${head} ${query}`} item={loaded.value} query={query} />
      <RowTable overview={overview} store={store} />
    </div>
  );
}

function Strips({ item, query }: { item: AttentionMaps; query: number }) {
  const { tokens } = item;
  const [q, k, scores] = [item.query_vectors!.data, item.key_vectors!.data, item.attention!.data];
  const most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most));
  const total = powers.reduce((sum, one) => sum + one);
  const weightOf = (j: number) => powers[j]! / total;
  const seen = largest(scores, MOST).filter((j) => scores[j]! > -Infinity);
  const keys = seen.sort((a, b) => a - b);
  const size = q.length;
  /** Columns between blocks, and of a score or weight. */
  const gap = Math.ceil(size / 16);
  const wide = (one: number) => Array<number>(gap).fill(one);
  const blocks = (key: Float32Array, times: number, score: number, weight: number) => [
    [...key],
    Array.from(key, (one, i) => times * one * q[i]!),
    wide(score),
    wide(weight),
  ];
  const keyOf = (j: number) => k.subarray(j * size, (j + 1) * size);
  const rows = [blocks(q, 0, 0, 0), ...keys.map((j) => blocks(keyOf(j), 1, scores[j]!, weightOf(j)))];
  // Each block has a scale of its own.
  const scales = rows[0]!.map((_, b) => largestSize(rows.flatMap((row) => row[b]!)));
  const values = rows.flatMap((row) =>
    row.flatMap((block, b) => [...block.map((one) => one / scales[b]!), ...wide(0)]),
  );
  const map: SignedMap = {
    rows: [query, ...keys].map((j) => tokens[j]!),
    columns: rows[0]!.flatMap((block, b) => [TITLES[b]!, ...Array<string>(block.length + gap - 1).fill("")]),
    values: Float32Array.from(values),
    high: HIGH,
  };
  const at = useSignal<Cell>([1, 0]);
  const told = ([row, column]: Cell): string => {
    const i = column < size ? column : column - size - gap;
    const j = keys[row - 1] ?? query;
    const [one, other] = [q[i], k[j * size + i]!];
    const product =
      one === undefined ? "" : `${signedText(one)} × ${signedText(other)} = ${signedText(one * other)}; `;
    return `${tokens[query]} → ${tokens[j]}: ${product}score ${signedText(scores[j]!)}, weight ${weightText(weightOf(j))}`;
  };
  return (
    <div>
      <SignedMapFrame map={map} at={at} label="Query and keys" told={told} />
    </div>
  );
}
