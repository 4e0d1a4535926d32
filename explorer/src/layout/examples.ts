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
    text: "She sat on the bank of the river and counted what the bank had paid her.",
    pair: null,
  },
  {
    title: "Words in pieces",
    text: "Transformers hallucinate antidisestablishmentarianism.",
    pair: null,
  },
  {
    title: "A question and a passage",
    text: "Where do penguins live?",
    pair: "Most penguins live in the southern hemisphere, and only one species is found north of the equator.",
  },
  {
    title: "A program",
    text: "def area(width, height):\n    return width * height\n\nprint(area(3, 4))",
    pair: null,
  },
];
