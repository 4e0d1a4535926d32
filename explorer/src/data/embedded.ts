/** The maps in the file that the page is: one input, and some of its layers. */

import { LABELS } from "../../../client/js/src/answers.js";
import {
  type Axis as AnyAxis,
  type AttentionMaps,
  type AttentionOptions,
  type Inputs,
  Tensor,
} from "../../../client/js/src/index.js";
import { type Labels, readLayer } from "./maps.js";
import { type FileData, halvesOf, type PackedItem, unpack } from "./packed.js";
import { inputsOf } from "./requests.js";
import type { Answer, Assets, Source } from "./source.js";
import { type Question, questionKey } from "./why.js";

export class EmbeddedSource implements Source {
  readonly held = true;
  readonly #overview: AttentionMaps;

  constructor(readonly data: FileData) {
    this.#overview = unpack(data.overview);
  }

  async info() {
    return this.data.info;
  }

  async tokenize() {
    return this.#answer(this.#overview);
  }

  /** Answer from what the file holds; throws an Error that says what that is. */
  async attention(inputs: Inputs, options: AttentionOptions) {
    if (options.summary) {
      this.#check({ inputs }, {});
      return this.#answer(this.#overview);
    }
    const { heads, queries, keys } = options;
    return this.#answer(selected(unpack(this.#held(inputs, options)), { head: heads, query: queries, key: keys }));
  }

  async layer(inputs: Inputs, options: AttentionOptions) {
    const item = this.#held(inputs, options);
    const { float16 } = item["attention"] as { float16: string };
    return this.#answer(readLayer(item as unknown as Labels, halvesOf(float16)));
  }

  async ask(question: Question) {
    const found = this.data.answers?.[questionKey(question)];
    if (found === undefined) {
      throw new Error("This file does not hold that. Open the explorer of a service for it.");
    }
    return found;
  }

  /** Throw an Error if something else is asked than what the file holds of its input. */
  #check(asked: object, held: object): void {
    const { text = "", pair = null } = this.data.state;
    if (!sameFields(asked, { ...held, inputs: inputsOf({ text, pair }) })) {
      throw new Error("This file holds maps as they were saved. Open the explorer of a service for other ones.");
    }
  }

  /** The layer that options ask for. */
  #held(inputs: Inputs, options: AttentionOptions): PackedItem {
    const { signal: _, layers, heads: _heads, queries: _queries, keys: _keys, dtype: _dtype, ...fields } = options;
    const { interventions = [], ...held } = this.data.fields;
    // Requests name the heads that count for them.
    const own = interventions.filter((one) => one.kind === "heads" && one.layer < (layers?.[0] as number));
    this.#check({ ...fields, inputs }, own.length > 0 ? { ...held, interventions: own } : held);
    const all = this.data.layers.map((item) => [(item["layers"] as number[])[0]!, item] as const);
    const found = all.find(([layer]) => layer === layers?.[0]);
    if (found === undefined || layers?.length !== 1) {
      const held = all.map(([layer]) => layer).join(", ");
      const what = held ? `layer ${held}` : "no layer";
      throw new Error(`This file holds the maps of ${what}. Open the explorer of a service for the others.`);
    }
    return found[1];
  }

  async assets(): Promise<Assets> {
    const text = (selector: string): string => document.querySelector(selector)?.textContent ?? "";
    return { script: text("script[type=module]"), style: text("style") };
  }

  #answer<T>(item: T): Answer<T> {
    return { items: [item], usage: { input_tokens: this.data.tokens } };
  }
}

function sameFields(asked: object, held: object): boolean {
  const sorted = (fields: object): string =>
    JSON.stringify(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1)));
  return sorted(asked) === sorted(held);
}

type Axis = Exclude<AnyAxis, "edge">;
type Chosen = Partial<Record<Axis, "all" | readonly number[] | undefined>>;

/** Some heads, rows and columns of an item. */
function selected(item: AttentionMaps, chosen: Chosen): AttentionMaps {
  if (!Object.values(chosen).some(Array.isArray)) return item;
  const { data, shape } = item.attention!;
  const axes = item.axes as readonly Axis[];
  const labels = axes.map((axis) => (Array.isArray(chosen[axis]) ? (chosen[axis] as number[]) : null));
  const picks = axes.map((axis, i) => {
    const all = item[LABELS[axis]]!;
    return (labels[i] ?? all).map((label) => all.indexOf(label));
  });
  const numbers: number[] = [];
  const gather = (axis: number, start: number): void => {
    if (axis === picks.length) numbers.push(data[start]!);
    else for (const index of picks[axis]!) gather(axis + 1, (start + index) * (shape[axis + 1] ?? 1));
  };
  gather(0, 0);
  const own = Object.fromEntries(axes.map((axis, i) => [LABELS[axis], labels[i] ?? item[LABELS[axis]]]));
  const attention = new Tensor(
    Float32Array.from(numbers),
    picks.map(({ length }) => length),
  );
  return { ...item, ...own, attention };
}
