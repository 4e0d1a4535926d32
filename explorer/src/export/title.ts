/** What a figure is of. */

import type { Overview } from "../data/overview.js";
import { headName, type Store } from "../state/store.js";

/** Views of all heads have none of their own in the title. */
const OF_ALL = new Set(["heads", "fingerprints", "pairs", "table", "lens"]);
const CHARACTERS = 300;

/** Model, layers and heads, and text. */
export function titleOf(store: Store, overview: Overview): string {
  const { model, text, pair, weights } = overview.subject;
  const { view, besideText, besideModel } = store.fields;
  const heads = store.headsOf(overview);
  const named = weights === "rollout" ? `rollout through layer ${heads.at(-1)![0]}` : heads.map(headName).join(", ");
  const compared = view.value === "compare" ? [besideModel.value, besideText.value] : [];
  const versus = (one: string, other: string | null | undefined) => (other ? `${one} / ${other}` : one);
  const quoted = [text, pair, compared[1]].map((one) => (one ? `“${one}”` : null));
  return [
    versus(model.name, compared[0]),
    ...(OF_ALL.has(view.value) ? [] : [named]),
    versus(versus(quoted[0] ?? "", quoted[1]), quoted[2]),
  ]
    .join(" · ")
    .slice(0, CHARACTERS);
}

/** A text in lines of a width, broken between words. */
export function wrapped(text: string, width: number, measure: (line: string) => number): string[] {
  const lines: string[] = [];
  for (const word of text.split(/\s+/)) {
    const last = lines.at(-1);
    if (last === undefined || measure(`${last} ${word}`) > width) lines.push(word);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  return lines;
}
