/** Texts to start from, each with what there is to see in it. */

export interface Example {
  readonly title: string;
  readonly text: string;
  readonly pair: string | null;
}

export const EXAMPLES: readonly Example[] = [
  {
    title: "What does “it” look at?",
    text: "The animal did not cross the street because it was too tired.",
    pair: null,
  },
  {
    title: "One word, two meanings",
    text: "The river bank is not the bank that paid her.",
    pair: null,
  },
  {
    title: "A question and a passage",
    text: "Where do penguins live?",
    pair: "Most penguins live in the south, and only one species north of the equator.",
  },
];
