/** Programs that ask for the same maps. */

import type { AttentionOptions, Inputs } from "../../../client/js/src/index.js";

/** A request: where, of what, and with which fields. */
export interface Asked {
  readonly url: string;
  readonly inputs: Inputs;
  readonly options: AttentionOptions;
  /** Whether the service wants a key, which programs read from HEADLIGHT_API_KEY. */
  readonly keyed: boolean;
}

export const LANGUAGES = { curl: "curl", python: "Python", bertviz: "BertViz" } as const;
export type Language = keyof typeof LANGUAGES;

export function codeOf(language: Language, asked: Asked): string {
  return { curl: curlCode, python: pythonCode, bertviz: bertvizCode }[language](asked);
}

function curlCode({ url, inputs, options, keyed }: Asked): string {
  const { dtype: _, ...fields } = options;
  const body = quoted(JSON.stringify({ inputs, ...fields }));
  const key = keyed ? ' \\\n  -H "Authorization: Bearer $HEADLIGHT_API_KEY"' : "";
  return `curl -s ${quoted(new URL("attention", url).href)} \\\n  -H 'Content-Type: application/json'${key} \\\n  -d ${body}\n`;
}

function pythonCode(asked: Asked): string {
  const axes = asked.options.aggregate ? "layers" : "layers, heads";
  return program(
    asked,
    "",
    `item = answer.items[0]\nprint(item.tokens)\nprint(item.attention.shape)  # ${axes}, queries, keys`,
  );
}

function bertvizCode(asked: Asked): string {
  // BertViz shows heads, which rollout does not have.
  const { aggregate: _, ...options } = asked.options;
  const imported = "from bertviz import head_view\n";
  return program({ ...asked, options }, imported, "head_view(*answer.items[0].to_bertviz())");
}

function program(asked: Asked, imported: string, use: string): string {
  return `${asked.keyed ? "import os\n\n" : ""}${imported}from headlight_client import Headlight

with ${client(asked)} as client:
    answer = client.attention(${call(asked)})
${use}
`;
}

function client({ url, keyed }: Asked): string {
  return `Headlight(${literal(url)}${keyed ? ', api_key=os.environ["HEADLIGHT_API_KEY"]' : ""})`;
}

function call({ inputs, options }: Asked): string {
  const { dtype: _, ...fields } = options;
  const given = Object.entries(fields).map(([name, value]) => `        ${name}=${literal(value)},\n`);
  return `\n        ${literal(inputs)},\n${given.join("")}    `;
}

/** A value of JSON in Python. */
function literal(value: unknown): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  return JSON.stringify(value);
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
