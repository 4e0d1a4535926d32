/** Colours of differences: the ground of the page at 0, orange above it, blue below. */

type Colour = readonly [number, number, number];

const ENDS: Record<"light" | "dark", { ground: Colour; below: Colour; above: Colour }> = {
  light: { ground: [255, 255, 255], below: [24, 84, 160], above: [178, 84, 8] },
  dark: { ground: [24, 24, 24], below: [120, 180, 255], above: [255, 168, 84] },
};

/** The colour of a difference, of which `most` is the largest size. */
export function divergingAt(difference: number, most: number, dark: boolean): [number, number, number] {
  const { ground, below, above } = ENDS[dark ? "dark" : "light"];
  // A root: small differences are to be seen too.
  const share = most > 0 && !Number.isNaN(difference) ? Math.sqrt(Math.min(Math.abs(difference) / most, 1)) : 0;
  const end = difference < 0 ? below : above;
  return [0, 1, 2].map((c) => Math.round(ground[c]! + share * (end[c]! - ground[c]!))) as [number, number, number];
}

/** Write the colours of differences into the pixels of an image, (differences, 4). */
export function paintDiverging(
  differences: Float32Array,
  pixels: Uint8ClampedArray,
  most: number,
  dark: boolean,
): void {
  for (let i = 0; i < differences.length; i++) {
    pixels.set(divergingAt(differences[i]!, most, dark), 4 * i);
    pixels[4 * i + 3] = 255;
  }
}

/** The largest size of finite numbers, 0 for none. */
export function largestSize(numbers: Float32Array): number {
  let most = 0;
  for (const number of numbers) if (Number.isFinite(number)) most = Math.max(most, Math.abs(number));
  return most;
}
