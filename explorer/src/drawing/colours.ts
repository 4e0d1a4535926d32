/** Colour maps of weights. */

import type { COLOURS } from "../state/fields.js";

/** A colour map: 256 colours of red, green and blue from 0 to 255. */
export interface ColourMap {
  readonly name: string;
  readonly table: Uint8Array;
}

export type Scale = "linear" | "sqrt" | "log";

/** Every sixteenth colour of the maps of these names in matplotlib, which gives them away under CC0. */
const STOPS: Record<string, string> = {
  viridis: "44015448186a472d7b4240863b528b33638d2c728e26828e21918c1fa08828ae803fbc735ec96284d44baddc30d8e219fde725",
  cividis: "00224e002e6a1a386f32436d434e6c535a6d61656f6f70737d7c788c88789b9476aba072bcae6ccdbb63dec958f0d846fee838",
  magma: "0000040a08221d114736106b51127c6a1c818326819c2e7fb73779d0416fe75263f56b5cfc8961fea772fec488fde2a3fcfdbf",
};
const COLOURS_IN_MAP = 256;
const LIGHT_PAPER = 255;
const DARK_PAPER = 24;
/** On a logarithmic scale, the share of the largest weight that is the lowest colour. */
const LOG_FLOOR = 1e-4;

const maps = new Map<string, ColourMap>();

/** The colour map of a choice: by default viridis on light ground and magma on dark. */
export function colourMap(choice: (typeof COLOURS)[number], dark: boolean): ColourMap {
  const name = choice === "auto" ? (dark ? "magma" : "viridis") : choice;
  let map = maps.get(name);
  if (map === undefined) {
    map = { name, table: interpolated(STOPS[name]!) };
    maps.set(name, map);
  }
  return map;
}

/** The place of a weight on a scale from `low` to `high`, 0 to 1; without a range, 0. */
export function place(weight: number, low: number, high: number, scale: Scale): number {
  const share = high > low ? Math.min(Math.max((weight - low) / (high - low), 0), 1) : 0;
  if (scale === "linear") return share;
  if (scale === "sqrt") return Math.sqrt(share);
  return Math.max(0, 1 - Math.log(Math.max(share, LOG_FLOOR)) / Math.log(LOG_FLOOR));
}

/** The weight that has a place from 0 to 1 on a scale. */
export function weightAtPlace(at: number, low: number, high: number, scale: Scale): number {
  const share = { linear: at, sqrt: at ** 2, log: at === 0 ? 0 : LOG_FLOOR ** (1 - at) }[scale];
  return low + (high - low) * share;
}

/** The colour at a place from 0 to 1. */
export function colourAt({ table }: ColourMap, at: number): [number, number, number] {
  const i = 3 * Math.round(at * (COLOURS_IN_MAP - 1));
  return [table[i]!, table[i + 1]!, table[i + 2]!];
}

/** A background for text, and the colour of ink on it. */
export interface Highlight {
  readonly background: string;
  readonly ink: string;
}

/** Steps from no weight to the largest. */
export const HIGHLIGHTS = 128;
const highlightsOf = new Map<string, readonly Highlight[]>();

/** Backgrounds from no weight to the largest: more weight stands out more from the page. */
export function highlights(choice: (typeof COLOURS)[number], dark: boolean): readonly Highlight[] {
  const map = colourMap(choice, dark);
  const key = `${map.name} ${dark}`;
  let all = highlightsOf.get(key);
  if (all === undefined) {
    all = Array.from({ length: HIGHLIGHTS }, (_, i) => highlight(map, i / (HIGHLIGHTS - 1), dark));
    highlightsOf.set(key, all);
  }
  return all;
}

function highlight(map: ColourMap, at: number, dark: boolean): Highlight {
  const colour = colourAt(map, dark ? at : 1 - at);
  // Low weights fade into the page, so that the eye finds the high ones.
  const alpha = Math.min(1, 1.6 * at);
  const paper = dark ? DARK_PAPER : LIGHT_PAPER;
  const [r, g, b] = colour.map((c) => Math.round(alpha * c + (1 - alpha) * paper)) as [number, number, number];
  return { background: at === 0 ? "transparent" : `rgb(${r}, ${g}, ${b})`, ink: inkOn(r, g, b) };
}

/** The ink that is seen on a ground: above this luminance black has more contrast than white. */
export function inkOn(r: number, g: number, b: number): string {
  return luminance(r, g, b) > 0.179 ? "#000" : "#fff";
}

/** Relative luminance (WCAG 2.2), 0 to 1. */
export function luminance(r: number, g: number, b: number): number {
  const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x! + 0.7152 * y! + 0.0722 * z!;
}

/** Write the colours of weights into the pixels of an image, (weights, 4). */
export function paint(
  weights: Float32Array,
  pixels: Uint8ClampedArray,
  map: ColourMap,
  low: number,
  high: number,
  scale: Scale,
): void {
  const words = new Uint32Array(pixels.buffer, pixels.byteOffset, weights.length);
  const ink = packed(map);
  // A table of places spares a root or a logarithm for each pixel.
  const steps = placesOf(scale);
  const factor = high > low ? (steps.length - 1) / (high - low) : 0;
  const last = steps.length - 1;
  for (let i = 0; i < weights.length; i++) {
    const step = (weights[i]! - low) * factor;
    words[i] = ink[steps[step > last ? last : step > 0 ? step | 0 : 0]!]!;
  }
}

/** The least and the largest of finite numbers; of probabilities the least is 0. What is not seen has the score −∞. */
export function rangeOf(weights: Float32Array, signed: boolean): [low: number, high: number] {
  let low = signed ? Infinity : 0;
  let high = signed ? -Infinity : 0;
  for (const weight of weights) {
    if (weight < low && weight > -Infinity) low = weight;
    if (weight > high && weight < Infinity) high = weight;
  }
  return low <= high ? [low, high] : [0, 0];
}

const STEPS = 4096;
const places = new Map<Scale, Uint8Array>();
const inks = new Map<ColourMap, Uint32Array>();

function placesOf(scale: Scale): Uint8Array {
  let table = places.get(scale);
  if (table === undefined) {
    table = Uint8Array.from({ length: STEPS }, (_, i) =>
      Math.round(place(i, 0, STEPS - 1, scale) * (COLOURS_IN_MAP - 1)),
    );
    places.set(scale, table);
  }
  return table;
}

/** The colours as words of four bytes, in the order that canvases have. */
function packed(map: ColourMap): Uint32Array {
  let ink = inks.get(map);
  if (ink === undefined) {
    const bytes = new Uint8ClampedArray(4 * COLOURS_IN_MAP).fill(255);
    for (let i = 0; i < COLOURS_IN_MAP; i++) bytes.set(map.table.subarray(3 * i, 3 * i + 3), 4 * i);
    ink = new Uint32Array(bytes.buffer);
    inks.set(map, ink);
  }
  return ink;
}

function interpolated(stops: string): Uint8Array {
  const given = stops.match(/../g)!.map((hex) => Number.parseInt(hex, 16));
  const intervals = given.length / 3 - 1;
  const table = new Uint8Array(3 * COLOURS_IN_MAP);
  for (let i = 0; i < COLOURS_IN_MAP; i++) {
    const at = (i / (COLOURS_IN_MAP - 1)) * intervals;
    const stop = Math.min(Math.floor(at), intervals - 1);
    for (let c = 0; c < 3; c++) {
      const [from, to] = [given[3 * stop + c]!, given[3 * stop + 3 + c]!];
      table[3 * i + c] = Math.round(from + (at - stop) * (to - from));
    }
  }
  return table;
}
