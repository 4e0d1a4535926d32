/** The colours of weights, with the numbers. */

import { useRef } from "preact/hooks";
import { colourAt, colourMap, highlights, type Scale, weightAtPlace } from "../drawing/colours.js";
import { weightText } from "../drawing/numbers.js";
import { useStore } from "../layout/context.js";
import { useSignalEffect } from "../state/signals.js";
import { inksOf } from "./maps/ink.js";

const STEPS = 128;

interface ScaleBarProps {
  /** The weights of the first and the last colour, or what they are called; null while there are none. */
  readonly range: readonly [low: number | string, high: number | string] | null;
  /** Whether the colours are those behind texts. */
  readonly texts?: boolean;
  /** How the numbers follow the colours, if not by the scale that is chosen. */
  readonly by?: Scale;
  /** Of drawings in one colour, how opaque the first is; the last is wholly. */
  readonly faint?: number;
  /** That colour; without one it is the accent. */
  readonly ink?: string;
}

export function ScaleBar({ range, texts = false, by, faint, ink }: ScaleBarProps) {
  const store = useStore();
  const canvas = useRef<HTMLCanvasElement>(null);
  const { colours, scale } = store.fields;
  useSignalEffect(() => {
    const map = colourMap(colours.value, store.dark.value);
    const inks = highlights(colours.value, store.dark.value);
    const { current } = canvas;
    current!.width = STEPS;
    current!.height = 1;
    const context = current!.getContext("2d")!;
    const { paper, accent } = inksOf(current!);
    for (let i = 0; i < STEPS; i++) {
      const at = i / (STEPS - 1);
      context.globalAlpha = 1;
      context.fillStyle = faint !== undefined ? paper : texts ? inks[i]!.background : `rgb(${colourAt(map, at)})`;
      context.fillRect(i, 0, 1, 1);
      if (faint === undefined) continue;
      context.globalAlpha = faint + (1 - faint) * at;
      context.fillStyle = ink ?? accent;
      context.fillRect(i, 0, 1, 1);
    }
  });
  const ticks = ticksOf(range, by ?? scale.value).map((one) => (typeof one === "number" ? weightText(one) : one));
  return (
    <div class="colour-bar scale-bar">
      <canvas ref={canvas} class="map" role="img" aria-label={`Colours from ${ticks[0]} to ${ticks.at(-1)}`} />
      <p aria-hidden="true">
        {ticks.map((tick, i) => (
          <span key={i}>{tick}</span>
        ))}
      </p>
    </div>
  );
}

/** What stands below the bar: as many without weights as with them, so that nothing moves when they come. */
function ticksOf(range: ScaleBarProps["range"], scale: Scale): (number | string)[] {
  const [low, high] = range ?? [];
  if (low === undefined || high === undefined) return ["–", "–", "–"];
  const between = typeof low === "number" && typeof high === "number";
  return between ? [low, weightAtPlace(0.5, low, high, scale), high] : [low, high];
}
