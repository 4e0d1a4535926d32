/** A text whose units are coloured by signed numbers. */

import type { Signal } from "@preact/signals-core";
import { Fragment } from "preact";
import { useRef } from "preact/hooks";
import type { Explanation } from "../../data/why.js";
import { place } from "../../drawing/colours.js";
import { arrowStep, directionOf } from "../../drawing/direction.js";
import { signedLook } from "../../drawing/diverging.js";
import { signedText } from "../../drawing/numbers.js";
import { useStore } from "../../layout/context.js";
import { useSignal } from "../../state/signals.js";
import { within } from "../../state/store.js";

interface UnitTextProps {
  readonly label: string;
  readonly text: string;
  /** Which of the texts it is. */
  readonly segment: number;
  /** Those of both texts, and their numbers. */
  readonly units: Explanation["units"];
  readonly effects: Float32Array;
  readonly most: number;
  /** The unit that is pointed at. */
  readonly chosen: Signal<number | null>;
  /** Those that stay chosen, and what a click or Enter does. */
  readonly pinned?: readonly number[];
  press?(unit: number, add: boolean): void;
}

/** The height of the bar that repeats the largest number, in pixels. */
const BAR = 4;

export function UnitText({ label, text, segment, units, effects, most, chosen, pinned, press }: UnitTextProps) {
  const store = useStore();
  const scale = store.fields.scale.value;
  const list = useRef<HTMLDivElement>(null);
  /** The one unit that the Tab key reaches. */
  const reached = useSignal(0);
  // Offsets count code points.
  const characters = Array.from(text);
  const own = units.segment.flatMap((one, i) => (one === segment ? [i] : []));
  let end = 0;
  /** After a unit that is no part of the text. */
  let gap = "";
  return (
    <div
      class="tokens"
      dir={directionOf(text)}
      ref={list}
      role="listbox"
      aria-label={label}
      onPointerLeave={() => (chosen.value = null)}
      onFocusOut={() => (chosen.value = null)}
    >
      {own.map((unit, i) => {
        const [from, to] = units.offsets[unit]!;
        const named = to <= from;
        const between = named ? " " : characters.slice(end, from).join("") || gap;
        end = named ? end : to;
        gap = named ? " " : "";
        const effect = effects[unit]!;
        const bar = Math.round(BAR * place(Math.abs(effect), 0, most, scale));
        const look = signedLook(effect, most, store.dark.value, scale);
        return (
          <Fragment key={unit}>
            {between.includes("\n") ? <br /> : between}
            <span
              role="option"
              aria-selected={(pinned?.length ? pinned : [chosen.value]).includes(unit)}
              aria-label={`${units.text[unit]} ${signedText(effect)}`}
              class={named ? "token special" : "token"}
              title={signedText(effect)}
              tabIndex={i === reached.value ? 0 : -1}
              // What adds has its bar below, what takes away above: not by colour alone.
              style={{ ...look, boxShadow: bar ? `inset 0 ${effect > 0 ? -bar : bar}px 0 0 ${look.color}` : "none" }}
              onPointerOver={() => (chosen.value = unit)}
              onClick={({ shiftKey }) => press?.(unit, shiftKey)}
              onFocus={() => {
                reached.value = i;
                chosen.value = unit;
              }}
              onKeyDown={(event) => {
                if (event.key === "Enter" || event.key === " ") {
                  event.preventDefault();
                  press?.(unit, event.shiftKey);
                }
                const by = arrowStep(event.key, directionOf(text));
                if (by === undefined) return;
                event.preventDefault();
                const next = within(i + by, own.length);
                list.current!.querySelectorAll<HTMLElement>("[role=option]")[next]!.focus();
              }}
            >
              {named ? units.text[unit] : characters.slice(from, to).join("")}
            </span>
          </Fragment>
        );
      })}
    </div>
  );
}
