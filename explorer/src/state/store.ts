/** The one store of the page: views read its signals and call its methods, and so are linked with each other. */

import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals-core";
import type { Info, ServedModel } from "../../../client/js/src/index.js";
import type { DatasetRun } from "../data/dataset.js";
import { type Loaded, Loader } from "../data/loader.js";
import type { Overview } from "../data/overview.js";
import type { Subject } from "../data/requests.js";
import { isLost, isRefused, type Source } from "../data/source.js";
import { FIELDS, type HeadId, type State } from "./fields.js";

/** How long after a service stopped answering it is asked again. */
const AGAIN_MS = 2000;

type Signals = { readonly [K in keyof State]: Signal<State[K]> };

/** A head and the position of a token, and why these. */
export interface Begun {
  readonly id: HeadId;
  readonly position: number | null;
  readonly told: string;
}

/** A store that another shares all with, but for some fields and what is pointed at. */
interface Beside {
  readonly store: Store;
  readonly own: Partial<Signals>;
}

export class Store {
  /** A signal for each field of a link. */
  readonly fields: Signals;
  readonly state: ReadonlySignal<State>;
  readonly loader: Loader;
  readonly info: Signal<Info | null>;
  /** Why `/info` could not be read. */
  readonly infoError = signal<Error | null>(null);
  /** The position of the token under the pointer or with the focus; null for none. */
  readonly hovered = signal<number | null>(null);
  /** What was chosen for a start, and why; null before that. */
  readonly begun = signal<Begun | null>(null);
  /** Whether the last change was that: it is no step of the history. */
  unasked = false;
  /** Counts how often all pins were taken out. */
  readonly unpinned = signal(0);
  /** The list of texts of a data set, one in a line, and what was asked of it; in no link. */
  readonly list = signal("");
  /** Whether it is the beginning of a file that is too large. */
  readonly cutFile = signal(false);
  readonly run = signal<DatasetRun | null>(null);
  /** Spoken by screen readers. */
  readonly spoken: Signal<string>;
  readonly systemDark: Signal<boolean>;
  /** Whether the service wants a key. */
  readonly needsKey = signal(false);
  /** Whether it refused the one that it got. */
  readonly keyRefused = signal(false);
  /** Whether the service stopped answering. */
  readonly lost = signal(false);
  readonly #failed = (error: Error): void => {
    if (isRefused(error)) {
      this.keyRefused.value = this.source.keyed === true;
      this.needsKey.value = true;
    } else if (isLost(error) && !this.lost.peek()) void this.#waitForService();
  };

  readonly dark = computed(() => {
    const theme = this.fields.theme.value;
    return theme === "auto" ? this.systemDark.value : theme === "dark";
  });

  /** The chosen model; null until `/info` is there, or if none shows its attention in all layers. */
  readonly model: ReadonlySignal<ServedModel | null> = computed(() => {
    const shown = this.models.value;
    const name = this.fields.model.value;
    return shown.find((model) => model.name === name) ?? shown[0] ?? null;
  });

  /** The models that show their attention, in all of their layers: the grid has a row for each. */
  readonly models = computed(() =>
    (this.info.value?.models ?? []).filter(
      ({ attention, layers, attention_layers }) => attention && (attention_layers?.length ?? layers) === layers,
    ),
  );

  /** Bytes of the largest answer. */
  readonly limit = computed(() => this.info.value?.limits.max_response_bytes ?? Number.POSITIVE_INFINITY);

  /** The chosen heads that the model has, the current one last: at least one. */
  readonly heads: ReadonlySignal<readonly HeadId[]> = computed(() => {
    const model = this.model.value;
    return model === null ? [[0, 0]] : this.headsOf(model);
  });

  readonly current: ReadonlySignal<HeadId> = computed(() => this.heads.value.at(-1)!);

  /** What is looked at: null before a text is entered. */
  readonly subject: ReadonlySignal<Subject | null> = computed(() => {
    const { text, pair, prompt, weights, level, special, ablated } = this.fields;
    const model = this.model.value;
    if (model === null || (text.value === "" && !pair.value)) return null;
    return {
      model,
      text: text.value,
      pair: pair.value,
      prompt: prompt.value,
      weights: weights.value,
      level: level.value,
      special: special.value,
      ablated: ablated.value.filter(([layer, head]) => layer < model.layers && head < model.heads),
    };
  });

  readonly overview: ReadonlySignal<Loaded<Overview> | null> = computed(() => {
    const subject = this.subject.value;
    return subject === null ? null : this.loader.overview(subject).value;
  });

  /** The overview once it is there. */
  readonly shown: ReadonlySignal<Overview | null> = computed(() => {
    const overview = this.overview.value;
    return overview?.state === "ready" ? overview.value : null;
  });

  /** The pinned positions that the input has and that were not dropped. */
  readonly pinned: ReadonlySignal<readonly number[]> = computed(() => {
    const shown = this.shown.value;
    return shown === null ? [] : this.pinnedIn(shown);
  });

  constructor(
    readonly source: Source,
    initial: State,
    beside: Beside | null = null,
  ) {
    const shared = beside?.store;
    this.loader = shared?.loader ?? new Loader(source, this.#failed);
    this.info = shared?.info ?? signal(null);
    this.spoken = shared?.spoken ?? signal("");
    this.systemDark = shared?.systemDark ?? signal(false);
    const signals = Object.keys(FIELDS).map((name) => [name, signal(initial[name as keyof State])]);
    this.fields = shared ? { ...shared.fields, ...beside?.own } : (Object.fromEntries(signals) as unknown as Signals);
    this.state = computed(() => {
      const values = Object.entries(this.fields).map(([name, { value }]) => [name, value]);
      return Object.fromEntries(values) as State;
    });
  }

  /** The chosen heads that a model has, the current one last: while another is loading, views still show the last. */
  headsOf({ layers, heads }: { readonly layers: number; readonly heads: number }): readonly HeadId[] {
    const own = this.fields.heads.value.filter(([layer, head]) => layer < layers && head < heads);
    return own.length > 0 ? own : [[Math.floor(layers / 2), 0]];
  }

  /** A store of another subject on the same page, which shares all fields but those given. */
  beside(own: Partial<Signals>): Store {
    return new Store(this.source, this.state.peek(), { store: this, own });
  }

  /** The pinned positions of an input: a view that is about to be replaced still shows the last one. */
  pinnedIn({ indexOf }: Pick<Overview, "indexOf">): readonly number[] {
    return this.fields.pinned.value.filter((position) => indexOf.has(position));
  }

  /** Whether two pins are an edge. */
  readonly edging = computed(() => this.fields.edge.value === "on" && this.fields.direction.value === "from");

  /** The pins of an input whose weights are shown: of an edge the query alone. */
  sourcesIn(overview: Pick<Overview, "indexOf">): readonly number[] {
    const pinned = this.pinnedIn(overview);
    return this.edging.value ? pinned.slice(0, 1) : pinned;
  }

  /** The pinned query and key; null unless both are there. */
  edgeIn(overview: Pick<Overview, "indexOf">): readonly [query: number, key: number] | null {
    const [query, key] = this.edging.value ? this.pinnedIn(overview) : [];
    return query === undefined || key === undefined ? null : [query, key];
  }

  /** Pin a query and a key, and have grid and table show that weight of every head. */
  pinEdge(query: number, key: number): void {
    batch(() => {
      this.fields.pinned.value = [query, key];
      this.fields.cells.value = "edge";
      this.fields.sort.value = "-edge";
    });
  }

  /** Read `/info`; a failure is in `infoError`. */
  async readInfo(): Promise<void> {
    try {
      this.info.value = await this.source.info();
      this.infoError.value = null;
    } catch (error) {
      this.infoError.value = error as Error;
      this.#failed(error as Error);
    }
  }

  /** Ask until it answers again, then ask for all that failed meanwhile. */
  async #waitForService(): Promise<void> {
    this.lost.value = true;
    do {
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      await this.source.info().then(
        () => (this.lost.value = false),
        (error) => (this.lost.value = isLost(error)),
      );
    } while (this.lost.peek());
    this.loader.forgetFailures();
    if (this.infoError.peek() !== null) await this.readInfo();
  }

  /** Go on with a key after a refusal. */
  async useKey(key: string): Promise<void> {
    this.source.useKey?.(key);
    this.needsKey.value = false;
    this.loader.forgetFailures();
    if (this.info.value === null) await this.readInfo();
  }

  /** Take over a whole state, as from a link. */
  restore(state: State): void {
    batch(() => {
      for (const [name, value] of Object.entries(state)) {
        const field = this.fields[name as keyof State] as Signal<unknown>;
        if (JSON.stringify(field.peek()) !== JSON.stringify(value)) field.value = value;
      }
    });
  }

  /** Look at another text: pins belong to the last one. */
  enter(entered: string, second: string | null): void {
    const text = whole(entered);
    const pair = second === null ? null : whole(second);
    batch(() => {
      if (text !== this.fields.text.value || pair !== this.fields.pair.value) this.#unpinForStart();
      this.fields.text.value = text;
      this.fields.pair.value = pair;
      this.loader.cancel();
      this.loader.forgetFailures();
    });
  }

  /** Choose a level: positions count tokens or words, so that pins do not carry over. */
  setLevel(level: State["level"]): void {
    batch(() => {
      this.fields.level.value = level;
      this.#unpinForStart();
    });
  }

  /** Choose for a start, where nothing is chosen. */
  begin(id: HeadId, position: number | null, told: string): void {
    this.unasked = true;
    this.begun.value = { id, position, told };
    this.fields.heads.value = [id];
    if (position !== null) this.fields.pinned.value = [position];
  }

  /** Whether what is chosen is what was chosen for a start. */
  isBegun({ id, position }: Begun): boolean {
    const { heads, pinned } = this.fields;
    return (
      JSON.stringify([heads.value, pinned.value]) === JSON.stringify([[id], position === null ? [] : [position]])
    );
  }

  /** Of another input the pins do not count, nor a head that only was a start. */
  #unpinForStart(): void {
    const begun = this.begun.peek();
    if (begun !== null && JSON.stringify(this.fields.heads.peek()) === JSON.stringify([begun.id])) {
      this.fields.heads.value = [];
    }
    this.fields.pinned.value = [];
    this.fields.lens.value = null;
  }

  /** Make a head the current one. One of several that are chosen leaves the others so. */
  openHead(id: HeadId): void {
    const chosen = this.heads.value;
    const others = chosen.filter((other) => !sameHead(other, id));
    this.fields.heads.value = others.length < chosen.length ? [...others, id] : [id];
  }

  /** Add a head to the chosen ones, or take it away; the last one stays. */
  toggleHead(id: HeadId): void {
    const chosen = this.heads.value;
    const others = chosen.filter((other) => !sameHead(other, id));
    if (others.length === chosen.length) this.fields.heads.value = [...chosen, id];
    else if (others.length > 0) this.fields.heads.value = others;
  }

  /** Run without a head from now on, or with it again. */
  readonly toggleAblated = (id: HeadId): void => {
    const { ablated } = this.fields;
    const others = ablated.value.filter((other) => !sameHead(other, id));
    ablated.value = others.length < ablated.value.length ? others : [...others, id];
  };

  chooseHeads(ids: readonly HeadId[]): void {
    if (ids.length > 0) this.fields.heads.value = ids;
  }

  /** Step to another layer or head, and stop at the edges. */
  step(layers: number, heads: number): void {
    const model = this.model.value;
    if (model === null) return;
    const [layer, head] = this.current.value;
    this.fields.heads.value = [[within(layer + layers, model.layers), within(head + heads, model.heads)]];
  }

  /** Take out all pins, those too that only a store beside this one has. */
  unpin(): void {
    batch(() => {
      this.fields.pinned.value = [];
      this.hovered.value = null;
      // An effect that calls this does not follow it.
      this.unpinned.value = this.unpinned.peek() + 1;
    });
  }

  /**
   * Pin a token alone, or with `add` beside others; once more takes the pin out. Of an edge it is the query, or after
   * one the key.
   */
  pin(position: number, add: boolean, edges = this.edging.peek()): void {
    const pinned = this.pinned.value;
    if (edges && pinned.length === 1) {
      this.pinEdge(pinned[0]!, position);
      return;
    }
    const others = pinned.filter((other) => other !== position);
    const was = others.length < pinned.length;
    this.fields.pinned.value = edges
      ? [position]
      : add
        ? was
          ? others
          : [...pinned, position]
        : was && pinned.length === 1
          ? []
          : [position];
  }
}

export function sameHead(a: HeadId, b: HeadId): boolean {
  return a[0] === b[0] && a[1] === b[1];
}

/** How a head is called everywhere, layer first. */
export function headName([layer, head]: HeadId): string {
  return `L${layer} H${head}`;
}

/** Half of a character, as of a text that was cut within one, cannot be sent. */
function whole(text: string): string {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}

/** The nearest index of so many. */
export function within(index: number, count: number): number {
  return Math.min(Math.max(index, 0), count - 1);
}
