/** Colours of differences: the ground of the page at 0, orange above it, blue below. */

import { inkOn, place, type Scale } from "./colours.js";

type Colour = readonly [number, number, number];

const ENDS: Record<"light" | "dark", { ground: Colour; below: Colour; above: Colour }> = {
  light: { ground: [255, 255, 255], below: [24, 84, 160], above: [178, 84, 8] },
  dark: { ground: [24, 24, 24], below: [120, 180, 255], above: [255, 168, 84] },
};

/** The colour of a difference, of which `most` is the largest size. */
export function divergingAt(difference: number, most: number, dark: boolean, scale: Scale): [number, number, number] {
  const { ground, below, above } = ENDS[dark ? "dark" : "light"];
  const share = Number.isNaN(difference) ? 0 : place(Math.abs(difference), 0, most, scale);
  const end = difference < 0 ? below : above;
  return [0, 1, 2].map((c) => Math.round(ground[c]! + share * (end[c]! - ground[c]!))) as [number, number, number];
}

/** The ground and the ink of a text with a signed number. */
export function signedLook(
  number: number,
  most: number,
  dark: boolean,
  scale: Scale,
): { backgroundColor: string; color: string } {
  const ground = divergingAt(number, most, dark, scale);
  return { backgroundColor: `rgb(${ground})`, color: inkOn(...ground) };
}

/** Write the colours of differences into the pixels of an image, (differences, 4). */
export function paintDiverging(
  differences: Float32Array,
  pixels: Uint8ClampedArray,
  most: number,
  dark: boolean,
  scale: Scale,
): void {
  for (let i = 0; i < differences.length; i++) {
    pixels.set(divergingAt(differences[i]!, most, dark, scale), 4 * i);
    pixels[4 * i + 3] = 255;
  }
}

/** The largest size of finite numbers, 0 for none. */
export function largestSize(numbers: Iterable<number>): number {
  let most = 0;
  for (const number of numbers) if (Number.isFinite(number)) most = Math.max(most, Math.abs(number));
  return most;
}
