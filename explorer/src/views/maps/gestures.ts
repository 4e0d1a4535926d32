/** Drags, pinches and clicks of pointers on an element, told apart. */

import { placeIn } from "../canvas.js";

export interface Gestures {
  /** A pointer moves without being down. */
  point(x: number, y: number): void;
  drag(dx: number, dy: number): void;
  zoom(factor: number, x: number, y: number): void;
  click(x: number, y: number, add: boolean): void;
}

/** A shorter way than this is a click. */
const CLICK_PIXELS = 5;
/** Of a turn of a wheel, which counts pixels. */
const WHEEL_RATE = 0.0018;

interface Down {
  x: number;
  y: number;
  /** The way since it is down. */
  way: number;
}

/** Listen to an element until the returned function is called. Places are in its CSS pixels. */
export function followGestures(element: HTMLElement, gestures: Gestures, canZoomOut: () => boolean): () => void {
  const down = new Map<number, Down>();
  let pinched = false;
  const at = (event: MouseEvent) => placeIn(element, event);
  const press = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const [x, y] = at(event);
    element.setPointerCapture(event.pointerId);
    down.set(event.pointerId, { x, y, way: 0 });
    pinched = down.size > 1;
  };
  const move = (event: PointerEvent): void => {
    const [x, y] = at(event);
    const own = down.get(event.pointerId);
    if (own === undefined) {
      if (down.size === 0) gestures.point(x, y);
      return;
    }
    const [dx, dy] = [x - own.x, y - own.y];
    const other = [...down].find(([id]) => id !== event.pointerId)?.[1];
    if (other !== undefined) {
      const before = Math.hypot(own.x - other.x, own.y - other.y);
      const after = Math.hypot(x - other.x, y - other.y);
      if (before > 0 && after > 0) gestures.zoom(after / before, (x + other.x) / 2, (y + other.y) / 2);
      gestures.drag(dx / 2, dy / 2);
    } else if (own.way + Math.hypot(dx, dy) > CLICK_PIXELS) gestures.drag(dx, dy);
    down.set(event.pointerId, { x, y, way: own.way + Math.hypot(dx, dy) });
  };
  const lift = (event: PointerEvent): void => {
    const own = down.get(event.pointerId);
    down.delete(event.pointerId);
    if (own === undefined || pinched || event.type === "pointercancel") return;
    if (own.way <= CLICK_PIXELS) gestures.click(...at(event), event.shiftKey);
  };
  const turn = (event: WheelEvent): void => {
    // Where nothing is left to see, the page scrolls.
    if (event.deltaY > 0 && !canZoomOut()) return;
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    gestures.zoom(Math.exp(-event.deltaY * lines * WHEEL_RATE), ...at(event));
  };
  const listeners = [
    ["pointerdown", press],
    ["pointermove", move],
    ["pointerup", lift],
    ["pointercancel", lift],
    ["wheel", turn],
  ] as const;
  for (const [name, listener] of listeners)
    element.addEventListener(name, listener as EventListener, { passive: false });
  return () => {
    for (const [name, listener] of listeners) element.removeEventListener(name, listener as EventListener);
  };
}
