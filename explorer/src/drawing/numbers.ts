/** Numbers as the page shows them. */

/** A weight, small ones with more decimals, never in powers of ten. */
export function weightText(weight: number): string {
  const size = Math.abs(weight);
  if (!Number.isFinite(weight)) return "–";
  if (size === 0) return "0";
  if (size < 0.000005) return "≈0";
  return (weight < 0 ? "−" : "") + size.toFixed(size < 0.01 ? 5 : size < 10 ? 3 : 1);
}

/** A number with its sign. */
export function signedText(number: number): string {
  return signOf(number, weightText(number));
}

/** A number with its sign in so few characters that it stands in a cell, beside others of which `most` is the largest. */
export function cellText(number: number, most: number): string {
  return signOf(number, most < 0.1 ? number.toFixed(3).replace("0.", ".") : number.toFixed(most < 10 ? 2 : 1));
}

function signOf(number: number, text: string): string {
  return number > 0 ? `+${text}` : text.replace("-", "−");
}

/** Milliseconds, below a second whole. */
export function timeText(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** A count and what it counts. */
export function countText(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** The indices of the largest numbers, largest first, ties by index. */
export function largest(numbers: ArrayLike<number>, count: number): number[] {
  const order = Array.from(numbers, (_, i) => i);
  order.sort((a, b) => numbers[b]! - numbers[a]! || a - b);
  return order.slice(0, count);
}
