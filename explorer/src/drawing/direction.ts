/** Where a text begins: at the left, or at the right. */

const LETTER = /\p{L}/u;
const RIGHT_TO_LEFT =
  /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;

/** By its first letter. `dir="auto"` would go by "[CLS]", which stands before the text. */
export function directionOf(text: string): "ltr" | "rtl" {
  const first = LETTER.exec(text)?.[0] ?? "";
  return RIGHT_TO_LEFT.test(first) ? "rtl" : "ltr";
}

/** The steps that arrow keys make in a list of tokens, which may run to the left. */
export function arrowStep(key: string, direction: "ltr" | "rtl"): number | undefined {
  const right = direction === "ltr" ? 1 : -1;
  return { ArrowRight: right, ArrowLeft: -right, ArrowDown: 1, ArrowUp: -1 }[key];
}
