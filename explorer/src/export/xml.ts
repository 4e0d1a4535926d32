/** Text and numbers as parts of SVG and HTML. */

const ENTITIES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** A text as content or as the value of an attribute. Characters that XML cannot hold are left out. */
export function escaped(text: string): string {
  return text.replace(/(?![\t\n\r])\p{Cc}|[\ufffe\uffff]/gu, "").replace(/[&<>"]/g, (c) => ENTITIES[c]!);
}

/** A number with at most two decimals, which are a hundredth of a pixel. */
export function round(number: number): number {
  return Math.round(100 * number) / 100;
}
