/** Hues of several heads at once; names stand beside them, since not everyone can tell hues apart. */

/** Those of Okabe and Ito first, on light ground darker. */
const ON_LIGHT = ["0072b2", "d55e00", "009e73", "b8478c", "8c6d00", "3a8fc4", "6a51a3", "4d4d4d"];
const ON_DARK = ["5ab4f0", "ff9550", "2fd0a0", "f0a3cf", "e6c84a", "b5dcff", "b9a3f5", "d0d0d0"];

/** The most heads that have lines at once. */
export const MOST_HUES = ON_LIGHT.length;

/** The hue of the head at an index among those that are shown. */
export function hueOf(index: number, dark: boolean): [red: number, green: number, blue: number] {
  const hex = (dark ? ON_DARK : ON_LIGHT)[index % MOST_HUES]!;
  return [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)) as [number, number, number];
}

export function cssOf([red, green, blue]: readonly [number, number, number]): string {
  return `rgb(${red}, ${green}, ${blue})`;
}
