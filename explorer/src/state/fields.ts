/**
 * What a link to the explorer holds: each field with its initial value and how to read it from a fragment. A fragment
 * may come from anywhere, so that `parse` returns undefined for anything that is not a value of the field.
 */

/** A head of a layer, both counted from 0. */
export type HeadId = readonly [layer: number, head: number];

export interface Field<T> {
  readonly initial: T;
  parse(value: unknown): T | undefined;
}

type ValueOf<F> = F extends Field<infer T> ? T : never;

const TEXT_CHARACTERS = 1_000_000;
const NAME_CHARACTERS = 500;
const LARGEST_INDEX = 99_999;
const LONGEST_LIST = 2_000;

export const WEIGHTS = ["probability", "value_norm", "score", "rollout"] as const;
export const LEVELS = ["token", "word"] as const;
export const SPECIAL = ["keep", "drop", "renormalize"] as const;
export const DIRECTIONS = ["from", "to"] as const;
export const COLOURS = ["auto", "viridis", "cividis", "magma"] as const;
export const SCALES = ["linear", "sqrt", "log"] as const;
export const FLOW_HEADS = ["all", "chosen"] as const;
/** Lines of all tokens, or of those of the first text, A, or the second to those of one of them. */
export const LINES_OF = ["all", "aa", "ab", "ba", "bb"] as const;
export const SINKS = ["keep", "drop"] as const;
export const THEMES = ["auto", "light", "dark"] as const;
/** How words are explained; "auto" is the service's own choice. */
export const METHODS = ["auto", "parts", "occlusion", "gradient"] as const;
export const EFFECTS = ["off", "on"] as const;
/** Which head stands beside the current one. */
export const BESIDE_HEADS = ["same", "own", "similar"] as const;
/** How tokens of a comparison are aligned; "auto" is by their places, where that can be. */
export const ALIGNMENTS = ["auto", "words"] as const;
export const UNITS = ["word", "token", "sentence"] as const;

export const FIELDS = {
  text: text(TEXT_CHARACTERS, ""),
  /** The second text of a pair. */
  pair: optional(TEXT_CHARACTERS),
  /** The name of a served model; null is the first that shows its attention. */
  model: optional(NAME_CHARACTERS),
  /** The name of a prompt; null is the model's default, and "" is none. */
  prompt: optional(NAME_CHARACTERS),
  /** The chosen heads, the current one last; none chosen is the first head of the middle layer. */
  heads: list(headId),
  /** Positions of the pinned tokens, or words, in the whole input. */
  pinned: list((value) => whole(value, LARGEST_INDEX)),
  view: text(NAME_CHARACTERS, "text"),
  weights: oneOf(WEIGHTS),
  level: oneOf(LEVELS),
  /** Special tokens stay, are dropped, or are dropped and the rows sum to 1 again. */
  special: oneOf(SPECIAL),
  /** Whether a pinned token shows where it looks, or what looks at it. */
  direction: oneOf(DIRECTIONS),
  /** Whether the first pin is a query and the second a key, of which every head has one weight. */
  edge: oneOf(EFFECTS),
  /** What cells of the grid show: thumbnails, or a statistic. */
  cells: text(NAME_CHARACTERS, "maps"),
  /** The statistic that orders the table, after "-" the largest first; none is layer by layer. */
  sort: text(NAME_CHARACTERS, ""),
  /** What stands beside the text, the second text and the model in a comparison; null is the same. */
  besideText: optional(TEXT_CHARACTERS),
  besidePair: optional(TEXT_CHARACTERS),
  besideModel: optional(NAME_CHARACTERS),
  /** The view in which both are shown, or "difference". */
  besideView: text(NAME_CHARACTERS, "text"),
  besideHead: oneOf(BESIDE_HEADS),
  /** The heads beside, if they are their own. */
  besideHeads: list(headId),
  besideAlign: oneOf(ALIGNMENTS),
  colours: oneOf(COLOURS),
  scale: oneOf(SCALES, "sqrt"),
  /** Lines of a row are the fewest that have this share of its mass. */
  mass: number(0, 1, 0.7),
  /** The texts of a pair between which lines lead. */
  linesOf: oneOf(LINES_OF),
  /** The strongest edges out of each token that a flow follows. */
  edges: integer(1, 40, 3),
  /** Whether a flow goes to attention sinks, too. */
  sinks: oneOf(SINKS),
  /** Whether edges of a flow are the mean of all heads, or of the chosen ones. */
  flowHeads: oneOf(FLOW_HEADS),
  /** The heads whose output is 0 in the run that is shown. */
  ablated: list(headId),
  /** The hidden state and the token whose words are listed; null is the last state, of a mask if there is one. */
  lens: { initial: null, parse: headId } as Field<HeadId | null>,
  method: oneOf(METHODS),
  unit: oneOf(UNITS),
  /** The label that is explained; null is the predicted one. */
  label: optional(NAME_CHARACTERS),
  /** The position of the token whose label is explained; -1 is the first that has one. */
  labelled: integer(-1, LARGEST_INDEX, -1),
  /** Whether the effect of every head is asked for, which takes a run for each. */
  effects: oneOf(EFFECTS),
  theme: oneOf(THEMES),
} as const satisfies Record<string, Field<unknown>>;

export type State = { -readonly [K in keyof typeof FIELDS]: ValueOf<(typeof FIELDS)[K]> };

/** The state that a link without a fragment has. */
export function initialState(): State {
  return Object.fromEntries(Object.entries(FIELDS).map(([name, { initial }]) => [name, initial])) as State;
}

/** Read what can be read of an unknown value; the rest is initial. */
export function parseState(value: unknown): State {
  const given = typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  const read = Object.entries(FIELDS).map(([name, field]) => {
    const own = Object.hasOwn(given, name) ? field.parse(given[name]) : undefined;
    return [name, own ?? field.initial];
  });
  return Object.fromEntries(read) as State;
}

/** The fields that differ from their initial values, which are all that a fragment needs. */
export function changedFields(state: State): Partial<State> {
  const changed = Object.entries(state).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(FIELDS[name as keyof State].initial),
  );
  return Object.fromEntries(changed);
}

export function text(characters: number, initial: string): Field<string> {
  return { initial, parse: (value) => shortText(value, characters) };
}

/** A text, or null. */
export function optional(characters: number): Field<string | null> {
  return { initial: null, parse: (value) => (value === null ? undefined : shortText(value, characters)) };
}

export function oneOf<const V extends readonly string[]>(
  values: V,
  initial: V[number] = values[0]!,
): Field<V[number]> {
  return { initial, parse: (value) => values.find((one) => one === value) };
}

/** A finite number within a range, which includes its ends. */
export function number(least: number, most: number, initial: number): Field<number> {
  return {
    initial,
    parse: (value) => (typeof value === "number" && value >= least && value <= most ? value : undefined),
  };
}

/** A whole number within a range, which includes its ends. */
export function integer(least: number, most: number, initial: number): Field<number> {
  const { parse } = number(least, most, initial);
  return { initial, parse: (value) => (Number.isInteger(value) ? parse(value) : undefined) };
}

export function list<T>(item: (value: unknown) => T | undefined): Field<readonly T[]> {
  return {
    initial: [],
    parse: (value) => {
      if (!Array.isArray(value) || value.length > LONGEST_LIST) return undefined;
      const items = value.map(item).filter((one) => one !== undefined);
      return items.length === value.length ? items : undefined;
    },
  };
}

function whole(value: unknown, most: number): number | undefined {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= most
    ? (value as number)
    : undefined;
}

function headId(value: unknown): HeadId | undefined {
  if (!Array.isArray(value) || value.length !== 2) return undefined;
  const [layer, head] = value.map((one) => whole(one, LARGEST_INDEX));
  return layer === undefined || head === undefined ? undefined : [layer, head];
}

/** A text of a limited length; one with half a character is refused, since it cannot be sent. */
function shortText(value: unknown, characters: number): string | undefined {
  if (typeof value !== "string" || value.length > characters) return undefined;
  return /\p{Surrogate}/u.test(value) ? undefined : value;
}
