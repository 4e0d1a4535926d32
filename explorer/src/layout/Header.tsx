/** The name of the page, the model and its prompt, the theme, and help. */

import { ExportMenu } from "../export/ExportDialog.js";
import { THEMES } from "../state/fields.js";
import { useStore } from "./context.js";
import { openHelp } from "./Help.js";

export function Header() {
  const store = useStore();
  const { fields } = store;
  const model = store.model.value;
  return (
    <header class="header">
      <h1>
        headlight <span>explorer</span>
      </h1>
      <div class="header-fields">
        <label>
          <span>Model</span>
          <select
            value={model?.name ?? ""}
            disabled={model === null}
            onChange={({ currentTarget }) => {
              fields.model.value = currentTarget.value;
              fields.prompt.value = null;
            }}
          >
            {store.models.value.map(({ name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <Prompt />
      </div>
      <div class="header-buttons">
        <ExportMenu />
        <ThemeButton />
        <button
          type="button"
          class="quiet"
          onClick={({ currentTarget }) => openHelp(currentTarget)}
          aria-label="Help and keys"
          title="Help and keys (?)"
        >
          ?
        </button>
      </div>
    </header>
  );
}

/** The prompts that the model has; most have none. */
function Prompt() {
  const store = useStore();
  const model = store.model.value;
  const names = Object.keys(model?.prompts ?? {});
  if (model === null || names.length === 0 || store.source.held) return null;
  const usual = model.default_prompt_name;
  const { prompt } = store.fields;
  return (
    <label>
      <span>Prompt</span>
      <select
        value={prompt.value ?? usual ?? ""}
        onChange={({ currentTarget: { value } }) => {
          prompt.value = value === (usual ?? "") ? null : value;
        }}
      >
        <option value="">none</option>
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

const NEXT = { auto: "light", light: "dark", dark: "auto" } as const;
const SIGNS = { auto: "◐", light: "☀", dark: "☾" } as const;

function ThemeButton() {
  const { theme } = useStore().fields;
  const name = THEMES.includes(theme.value) ? theme.value : "auto";
  const told = name === "auto" ? "as the system" : name;
  return (
    <button
      type="button"
      class="quiet"
      title={`Theme: ${told}`}
      aria-label={`Theme: ${told}. Change to ${NEXT[name]}`}
      onClick={() => {
        theme.value = NEXT[name];
      }}
    >
      {SIGNS[name]}
    </button>
  );
}
