/**
 * Signals in components: one that reads a signal is drawn anew when it changes. This is what the page needs of
 * @preact/signals, in a quarter of its bytes.
 */

import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals-core";
import { Component, Fragment, options } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";

/** In a window that is not seen there are no frames. */
const LATEST_MS = 35;

type Stop = () => void;
interface Drawn extends Component {
  /** Stop following what it has read; none before it is drawn, and once it is gone. */
  stop?: Stop | undefined;
}
let current: Drawn;

/** Preact calls `__r` before it calls a component's function. */
const hooks = options as { __r?: (node: { readonly type: unknown; readonly __c: Drawn }) => void };
const before = hooks.__r;
hooks.__r = (node) => {
  before?.(node);
  const { type, __c: component } = node;
  current = component;
  if (type === Fragment || component.stop) return;
  const draw = component.render;
  component.stop = () => undefined;
  component.render = (...given) => {
    component.stop!();
    let drawn: ReturnType<typeof draw>;
    component.stop = follow(
      () => {
        drawn = draw.apply(component, given);
      },
      () => component.forceUpdate(),
    );
    return drawn;
  };
  component.componentWillUnmount = () => {
    component.stop!();
    component.stop = undefined;
  };
};

/** What has the same properties as before is as it was, unless a signal has changed. */
Component.prototype.shouldComponentUpdate = function (next: object): boolean {
  const now = Object.entries(next);
  const old = this.props as Readonly<Record<string, unknown>>;
  return Object.keys(old).length !== now.length || now.some(([name, value]) => old[name] !== value);
};

/** Run a function, and once something that it has read changes call another. What the first returns ends it. */
function follow(run: () => unknown, changed: () => void): Stop {
  let first = true;
  return effect(() => {
    if (!first) return changed();
    first = false;
    return run() as Stop;
  });
}

/** A signal that lives as long as the component. */
export function useSignal<T>(value: T): Signal<T> {
  const held = useRef<Signal<T> | null>(null);
  held.current ??= signal(value);
  return held.current;
}

/** What is computed of signals; of the component it has what was there when it was drawn last. */
export function useComputed<T>(compute: () => T): ReadonlySignal<T> {
  const latest = useRef(compute);
  latest.current = compute;
  return useMemo(() => computed(() => latest.current()), []);
}

/** Run a function after the component is drawn, and at the next frame after a signal that it has read has changed. */
export function useSignalEffect(run: () => unknown): void {
  const latest = useRef(run);
  latest.current = run;
  const component = current;
  useEffect(() => {
    let frame: number;
    let timer: ReturnType<typeof setTimeout>;
    let end: Stop | undefined;
    const cancel = (): void => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
    };
    const begin = (): void => {
      cancel();
      end?.();
      // Preact ends effects some time after their component is gone.
      if (!component.stop) return;
      end = follow(
        () => latest.current(),
        () => {
          frame = requestAnimationFrame(begin);
          timer = setTimeout(begin, LATEST_MS);
        },
      );
    };
    begin();
    return () => {
      cancel();
      end?.();
    };
  }, []);
}
