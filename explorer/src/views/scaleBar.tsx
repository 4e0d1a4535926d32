/** The colours of weights, with the numbers. */

import { useRef } from "preact/hooks";
import { colourAt, colourMap, highlights, type Scale, weightAtPlace } from "../drawing/colours.js";
import { weightText } from "../drawing/numbers.js";
import { useStore } from "../layout/context.js";
import { useSignalEffect } from "../state/signals.js";

const STEPS = 128;

interface ScaleBarProps {
  /** The weights of the first and the last colour, or what they are called; null while there are none. */
  readonly range: readonly [low: number | string, high: number | string] | null;
  /** Whether the colours are those behind texts. */
  readonly texts?: boolean;
  /** Whether the numbers do not follow the scale. */
  readonly linear?: boolean;
}

export function ScaleBar({ range, texts = false, linear = false }: ScaleBarProps) {
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
    for (let i = 0; i < STEPS; i++) {
      context.fillStyle = texts ? inks[i]!.background : `rgb(${colourAt(map, i / (STEPS - 1))})`;
      context.fillRect(i, 0, 1, 1);
    }
  });
  const ticks = ticksOf(range, linear ? "linear" : scale.value).map((one) =>
    typeof one === "number" ? weightText(one) : one,
  );
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
