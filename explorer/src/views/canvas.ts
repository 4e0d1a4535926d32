/** Canvases that follow the size of their element and the density of the screen. */

import { effect, type ReadonlySignal, signal } from "@preact/signals-core";
import type { RefObject } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { useComputed } from "../state/signals.js";

export interface Size {
  readonly width: number;
  readonly height: number;
}

/** The size of an element in CSS pixels, which follows it; 0 × 0 before it is measured. */
export function useSize<E extends Element>(): [RefObject<E | null>, ReadonlySignal<Size>] {
  const element = useRef<E>(null);
  const size = useMemo(() => signal<Size>({ width: 0, height: 0 }), []);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => {
      const { width, height } = entry!.contentRect;
      size.value = { width: Math.floor(width), height: Math.floor(height) };
    });
    observer.observe(element.current!);
    return () => observer.disconnect();
  }, [size]);
  return [element, useComputed(() => size.value)];
}

/** Draw whenever a signal that is read or one of the `inputs` changes, for as long as the canvas is on the page. */
export function useDrawing(
  canvas: RefObject<HTMLCanvasElement | null>,
  draw: (canvas: HTMLCanvasElement) => void,
  inputs: readonly unknown[],
): void {
  // biome-ignore lint/correctness/useExhaustiveDependencies: the inputs are those of `draw`.
  useEffect(
    () =>
      effect(() => {
        // Effects of a component that has gone live until the next frame; its canvas does not.
        if (canvas.current !== null) draw(canvas.current);
      }),
    [canvas, ...inputs],
  );
}

/** Pixels a CSS pixel while a picture is exported; null is the screen's own. Canvases follow it. */
export const pixelDensity = signal<number | null>(null);
/** What a canvas is drawn into in place of itself while it is exported. Canvases follow it. */
export const drawnInto = signal<{ canvas: HTMLCanvasElement; context: CanvasRenderingContext2D } | null>(null);

/** Clear a canvas and set its size in CSS pixels; returns the context, which draws in them. */
export function prepare(canvas: HTMLCanvasElement, { width, height }: Size): CanvasRenderingContext2D {
  const other = drawnInto.value;
  if (other?.canvas === canvas) return other.context;
  const density = pixelDensity.value ?? Math.min(window.devicePixelRatio || 1, 3);
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  // Without these, a canvas is as large as it has pixels.
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d")!;
  context.setTransform(density, 0, 0, density, 0, 0);
  return context;
}

/** The place of a pointer in an element, in CSS pixels. */
export function placeIn(element: Element, { clientX, clientY }: MouseEvent): [number, number] {
  const { left, top } = element.getBoundingClientRect();
  return [clientX - left, clientY - top];
}
