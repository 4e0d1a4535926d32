/** The text itself: a pinned token colours all others by their weights, out of it or into it. */

import { batch } from "@preact/signals-core";
import { Fragment } from "preact";
import { useId, useRef } from "preact/hooks";
import type { Unit } from "../data/overview.js";
import { HIGHLIGHTS, highlights, place, rangeOf } from "../drawing/colours.js";
import { arrowStep, directionOf } from "../drawing/direction.js";
import { largest, weightText } from "../drawing/numbers.js";
import { useStore } from "../layout/context.js";
import type { State } from "../state/fields.js";
import { useComputed, useSignal, useSignalEffect } from "../state/signals.js";
import type { Store } from "../state/store.js";
import { activeWeights } from "./active.js";
import { RowTable } from "./rowTable.js";
import { ScaleBar } from "./scaleBar.js";
import type { ViewProps } from "./view.js";

export function TextView({ overview }: ViewProps) {
  const store = useStore();
  return (
    <div class="text-view">
      <div>
        <div class="view-tools">
          <Directions />
          <Find units={overview.units} />
        </div>
        <TokenList overview={overview} />
        <WeightBar overview={overview} />
      </div>
      <RowTable overview={overview} store={store} />
    </div>
  );
}

/** The range of the weights that colour the tokens. */
function WeightBar({ overview }: ViewProps) {
  const store = useStore();
  const range = useComputed(() => {
    const { weights } = activeWeights(store, overview);
    return weights === null ? null : rangeOf(weights, overview.subject.weights === "score");
  });
  return <ScaleBar range={range.value} texts />;
}

/** Whether weights go out of the pinned token or into it. */
export function Directions() {
  const store = useStore();
  const { direction, edge, pinned } = store.fields;
  // In a comparison there are two of these.
  const name = useId();
  return (
    <fieldset class="switch">
      <legend class="unseen">Direction</legend>
      {(["from", "to", "edge"] as const).map((value) => (
        <label key={value}>
          <input
            type="radio"
            name={name}
            checked={(edge.value === "on" && direction.value === "from" ? "edge" : direction.value) === value}
            onChange={() =>
              batch(() => {
                edge.value = value === "edge" ? "on" : "off";
                // Whoever asks about an edge pins its query first: what the page pinned by itself would be taken for it.
                const begun = store.begun.value;
                if (value === "edge" && begun && store.isBegun(begun)) pinned.value = [];
                direction.value = value === "to" ? "to" : "from";
              })
            }
          />
          <span title={value === "edge" ? "Pin a token, then one that it looks at: all heads by that weight" : ""}>
            {{ from: "where it looks", to: "what looks at it", edge: "an edge" }[value]}
          </span>
        </label>
      ))}
    </fieldset>
  );
}

/** Finds the next token that contains what is typed, from the last one that was found on. */
function Find({ units }: { units: readonly Unit[] }) {
  const store = useStore();
  const missing = useSignal(false);
  const last = useRef(-1);
  const find = (input: HTMLInputElement): void => {
    const wanted = input.value.trim().toLowerCase();
    if (wanted === "") return;
    const after = last.current + 1;
    const ordered = [...units.slice(after), ...units.slice(0, after)];
    const found = ordered.find(({ label, token }) => `${label} ${token}`.toLowerCase().includes(wanted));
    missing.value = found === undefined;
    if (found === undefined) store.spoken.value = `No token contains ${wanted}.`;
    else {
      last.current = found.position;
      focusToken(input, found.position);
    }
  };
  return (
    <label class="finder">
      <span class="unseen">Find a token</span>
      <input
        class="find"
        type="search"
        placeholder="Find a token  /"
        aria-invalid={missing.value}
        onInput={() => {
          missing.value = false;
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") find(event.currentTarget);
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
    </label>
  );
}

function focusToken(near: HTMLElement, position: number): void {
  near.closest(".view")?.querySelector<HTMLElement>(`[data-position="${position}"]`)?.focus();
}

function TokenList({ overview }: ViewProps) {
  const store = useStore();
  const list = useRef<HTMLDivElement>(null);
  /** The one token that the Tab key reaches. */
  const reached = useSignal(0);
  const active = useComputed(() => activeWeights(store, overview));
  const direction = directionOf(overview.subject.text);
  useSignalEffect(() => {
    const { weights, positions } = active.value;
    paintTokens(store, list.current!, overview, weights, positions);
  });
  useSignalEffect(() => {
    const pinned = new Set(store.pinnedIn(overview));
    tokensOf(list.current!).forEach((element, position) => {
      element.setAttribute("aria-selected", String(pinned.has(position)));
    });
  });
  useSignalEffect(() => {
    const pinned = store.sourcesIn(overview);
    const { weights } = active.value;
    if (pinned.length > 0 && store.edgeIn(overview) === null && weights !== null)
      store.spoken.value = told(overview, pinned, weights);
  });
  const at = (event: Event): number | null => {
    const token = (event.target as Element).closest<HTMLElement>("[data-position]");
    return token === null ? null : Number(token.dataset["position"]);
  };
  const pin = (event: MouseEvent | KeyboardEvent): void => {
    const position = at(event);
    if (position === null || !overview.indexOf.has(position)) return;
    store.pin(position, event.shiftKey);
  };
  const move = (event: KeyboardEvent): void => {
    const position = at(event);
    const last = overview.units.length - 1;
    const next = arrowStep(event.key, direction);
    if (position === null) return;
    if (event.key === "Enter" || event.key === " ") pin(event);
    else if (event.key === "Home") focusToken(list.current!, 0);
    else if (event.key === "End") focusToken(list.current!, last);
    else if (next !== undefined) focusToken(list.current!, Math.min(Math.max(position + next, 0), last));
    else return;
    event.preventDefault();
  };
  return (
    <div
      class="tokens"
      dir={direction}
      ref={list}
      role="listbox"
      aria-multiselectable="true"
      aria-label={overview.subject.level === "word" ? "Words" : "Tokens"}
      onClick={pin}
      onKeyDown={move}
      onPointerOver={(event) => {
        const position = at(event);
        if (event.pointerType !== "mouse" || position === null) return;
        store.hovered.value = position;
        const weight = active.peek().weights?.[overview.indexOf.get(position) ?? -1];
        (event.target as HTMLElement).title = weight === undefined ? "" : weightText(weight);
      }}
      onPointerLeave={() => {
        store.hovered.value = null;
      }}
      onFocusIn={(event) => {
        reached.value = at(event) ?? 0;
        store.hovered.value = at(event);
      }}
      onFocusOut={() => {
        store.hovered.value = null;
      }}
    >
      <Tokens units={overview.units} kept={overview.indexOf} reached={reached.value} />
    </div>
  );
}

function Tokens(props: { units: readonly Unit[]; kept: ReadonlyMap<number, number>; reached: number }) {
  return props.units.map((unit, i) => (
    <Fragment key={unit.position}>
      {unit.broken && <br />}
      {i > 0 && unit.segment !== props.units[i - 1]!.segment && <hr class="between" role="presentation" />}
      {unit.spaced && !unit.broken && " "}
      <span
        role="option"
        aria-selected="false"
        aria-disabled={!props.kept.has(unit.position)}
        class={unit.special ? "token special" : "token"}
        data-position={unit.position}
        tabIndex={unit.position === props.reached ? 0 : -1}
      >
        {unit.label}
      </span>
    </Fragment>
  ));
}

/** Rules of a class for each step from no weight to the largest. */
const sheets = new Map<string, CSSStyleSheet>();

/**
 * What the classes of steps begin with. Computed styles of elements with the same rules share memory, those of elements
 * with styles of their own do not: a minute of pointing at tokens left 150 MB to collect.
 */
function stepClass(list: HTMLElement, colours: State["colours"], dark: boolean): string {
  const name = `${colours}-${dark}-`;
  let sheet = sheets.get(name);
  if (sheet === undefined) {
    sheet = new CSSStyleSheet();
    const inks = highlights(colours, dark);
    const rules = inks.map(({ background, ink }, step) => {
      // The bar repeats the weight for those who cannot tell the colours apart. Below it a line of the background is
      // left: the largest weights have ink of the page's own colour, in which the token would end above the bar.
      const bar = Math.round((4 * step) / inks.length);
      const shadow = `inset 0 -1px 0 0 ${background},inset 0 -${bar + 1}px 0 0 currentColor`;
      return `.token.${name}${step}{background:${background};color:${ink}${bar > 0 ? `;box-shadow:${shadow}` : ""}}`;
    });
    sheet.replaceSync(rules.join(""));
    sheets.set(name, sheet);
  }
  const root = list.getRootNode() as Document | ShadowRoot;
  if (!root.adoptedStyleSheets.includes(sheet)) root.adoptedStyleSheets.push(sheet);
  return name;
}

/** Colour the tokens, without a render: this follows the pointer. */
function paintTokens(
  store: Store,
  list: HTMLElement,
  { indexOf, subject, units }: ViewProps["overview"],
  weights: Float32Array | null,
  positions: readonly number[],
): void {
  const dark = store.dark.value;
  const colours = store.fields.colours.value;
  const name = stepClass(list, colours, dark);
  const scale = store.fields.scale.value;
  const [low, high] = weights === null ? [0, 0] : rangeOf(weights, subject.weights === "score");
  const active = new Set(positions);
  tokensOf(list).forEach((element, position) => {
    const index = indexOf.get(position);
    const weight = weights === null || index === undefined ? null : weights[index]!;
    const step = weight === null ? "" : name + Math.round(place(weight, low, high, scale) * (HIGHLIGHTS - 1));
    const special = units[position]!.special ? "special " : "";
    const look = `token ${special}${active.has(position) ? "active " : ""}${step}`;
    if (element.className !== look) element.className = look;
  });
}

/** In the order of their positions. A live collection would be searched anew after each change of a class. */
function tokensOf(list: HTMLElement): NodeListOf<HTMLElement> {
  return list.querySelectorAll(".token");
}

/** What a screen reader says of the pinned tokens. */
function told({ units, kept }: ViewProps["overview"], pinned: readonly number[], weights: Float32Array): string {
  const names = pinned.map((position) => units[position]!.label).join(" and ");
  const best = largest(weights, 3).map((i) => `${kept[i]!.label} ${weightText(weights[i]!)}`);
  return `${names} pinned. Largest weights: ${best.join(", ")}.`;
}
