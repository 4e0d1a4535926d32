/** A map as an image, a pixel for each weight. */

import { useEffect, useRef } from "preact/hooks";
import { colourMap, paint, rangeOf } from "../drawing/colours.js";
import { useStore } from "../layout/context.js";
import { useSignalEffect } from "../state/signals.js";

interface MapCanvasProps {
  /** (size, size) */
  readonly weights: Float32Array;
  /** Whether weights may be below 0. */
  readonly signed: boolean;
  /** What screen readers say; without it they pass over the image. */
  readonly label?: string;
}

export function MapCanvas({ weights, signed, label }: MapCanvasProps) {
  const store = useStore();
  const canvas = useRef<HTMLCanvasElement>(null);
  const drawn = useRef<() => void>(() => undefined);
  drawn.current = () => {
    const { colours, scale } = store.fields;
    drawMap(canvas.current!, weights, signed, colourMap(colours.value, store.dark.value), scale.value);
  };
  useSignalEffect(() => drawn.current());
  // The signals do not change with another map.
  const first = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `drawn` draws these weights.
  useEffect(() => {
    if (!first.current) drawn.current();
    first.current = false;
  }, [weights, signed]);
  return label === undefined ? (
    <canvas ref={canvas} class="map" aria-hidden="true" />
  ) : (
    <canvas ref={canvas} class="map" role="img" aria-label={label} />
  );
}

function drawMap(
  canvas: HTMLCanvasElement,
  weights: Float32Array,
  signed: boolean,
  ...[map, scale]: [Parameters<typeof paint>[2], Parameters<typeof paint>[5]]
): void {
  const size = Math.round(Math.sqrt(weights.length));
  if (size === 0) return;
  if (canvas.width !== size) {
    canvas.width = size;
    canvas.height = size;
  }
  const image = new ImageData(size, size);
  paint(weights, image.data, map, ...rangeOf(weights, signed), scale);
  canvas.getContext("2d")!.putImageData(image, 0, 0);
}
