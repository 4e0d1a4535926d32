/** What can be taken away: pictures, numbers, a page of its own, and programs. */

import type { Signal } from "@preact/signals-core";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { Overview } from "../data/overview.js";
import { fitsWhole, inputsOf, layerFields, layersFields } from "../data/requests.js";
import { PAGE, useStore } from "../layout/context.js";
import { sentence } from "../layout/Problems.js";
import { toFragment } from "../state/fragment.js";
import { useComputed, useSignal } from "../state/signals.js";
import type { Store } from "../state/store.js";
import { codeOf, LANGUAGES, type Language } from "./code.js";
import { estimatedBytes, htmlFile, tooLarge } from "./html.js";
import { copyFrom, saveFile, toPng } from "./save.js";
import { pictureOf } from "./svg.js";
import { titleOf } from "./title.js";

/** Pixels of the PNG: for each of the page, or above 4 dots per inch. */
const SCALES = [2, 3, 4, 300, 600] as const;
const DEFAULT_URL = "http://127.0.0.1:8000/";

/** The button and its dialog; there is nothing to export before something is shown. */
export function ExportMenu() {
  const store = useStore();
  const dialog = useRef<HTMLDialogElement>(null);
  const overview = store.shown.value;
  return (
    <>
      <button type="button" disabled={overview === null} onClick={() => dialog.current!.showModal()}>
        Export
      </button>
      <dialog class="export" ref={dialog} aria-labelledby="export-title">
        {overview !== null && <Contents overview={overview} />}
        <form method="dialog">
          <button type="submit">Close</button>
        </form>
      </dialog>
    </>
  );
}

interface Work {
  /** What is being done or was, or what went wrong. */
  readonly told: Signal<string>;
  readonly busy: Signal<boolean>;
}

function Contents({ overview }: { overview: Overview }) {
  const store = useStore();
  const work: Work = { told: useSignal(""), busy: useSignal(false) };
  return (
    <>
      <h2 id="export-title">Export</h2>
      <Pictures overview={overview} work={work} />
      <Link work={work} />
      <Numbers overview={overview} work={work} />
      <Code overview={overview} />
      <p class="told" role="status">
        {work.told.value}
      </p>
      {store.source.held && <p class="note">This page is a file: it has no service to ask.</p>}
    </>
  );
}

/** Do something that takes a while, and say how it ended. Buttons keep the focus meanwhile, and do nothing. */
async function run({ told, busy }: Work, act: () => Promise<string>): Promise<void> {
  if (busy.value) return;
  busy.value = true;
  told.value = "Working…";
  try {
    told.value = await act();
  } catch (error) {
    told.value = sentence(error as Error);
  } finally {
    busy.value = false;
  }
}

function Part({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="export-part">
      <h3>{title}</h3>
      <div class="export-row">{children}</div>
    </section>
  );
}

function Pictures({ overview, work }: { overview: Overview; work: Work }) {
  const store = useStore();
  const field = useRef<HTMLSelectElement>(null);
  const scale = useSignal<number>(SCALES[0]);
  const mm = useSignal<number | null>(null);
  const whole = useSignal(false);
  const pictured = (density: number) =>
    pictureOf(field.current!.closest(".headlight")!.querySelector<HTMLElement>("#view")!, {
      density,
      title: titleOf(store, overview),
      figure: !whole.value,
      mm: mm.value,
    });
  const png = async (): Promise<string> => {
    const picture = await pictured(3);
    const { svg, width, height } = picture;
    // Beyond the factors are dots per inch.
    const inches = (mm.value ?? (25.4 * width) / 96) / 25.4;
    const times = scale.value > 4 ? (scale.value * inches) / width : scale.value;
    const [across, down] = [Math.round(width * times), Math.round(height * times)];
    saveFile(await toPng(svg, across, down, inches), fileName(store, "png"));
    return `Saved a picture of ${across} × ${down} pixels.`;
  };
  const svg = async (): Promise<string> => {
    const picture = await pictured(3);
    saveFile(new Blob([picture.svg], { type: "image/svg+xml" }), fileName(store, "svg"));
    return "Saved. Texts, maps of up to 128 × 128 cells and 5,000 lines are vectors.";
  };
  return (
    <Part title="Picture of this view">
      <label>
        <span>Width in mm</span>
        <input
          class="mm"
          type="number"
          min="20"
          max="2000"
          placeholder="as on screen"
          value={mm.value ?? ""}
          onInput={({ currentTarget: { valueAsNumber } }) => {
            mm.value = valueAsNumber >= 1 && valueAsNumber <= 2000 ? valueAsNumber : null;
          }}
        />
      </label>
      <label>
        <span>What</span>
        <select
          value={String(whole.value)}
          onChange={({ currentTarget }) => {
            whole.value = currentTarget.value === "true";
          }}
        >
          <option value="false">the figure</option>
          <option value="true">with tables and hints</option>
        </select>
      </label>
      <label>
        <span>Pixels of the PNG</span>
        <select
          ref={field}
          value={scale.value}
          onChange={({ currentTarget }) => {
            scale.value = Number(currentTarget.value);
          }}
        >
          {SCALES.map((times) => (
            <option key={times} value={times}>
              {times > 4 ? `${times} dpi` : `${times} ×`}
            </option>
          ))}
        </select>
      </label>
      <button type="button" aria-disabled={work.busy.value} onClick={() => run(work, png)}>
        PNG
      </button>
      <button type="button" aria-disabled={work.busy.value} onClick={() => run(work, svg)}>
        SVG
      </button>
    </Part>
  );
}

/** The address of what is shown; a notebook has none. */
function Link({ work }: { work: Work }) {
  const { state } = useStore();
  const field = useRef<HTMLTextAreaElement>(null);
  if (document.getElementById(PAGE) === null) return null;
  const copy = async (): Promise<string> => {
    const fragment = await toFragment(state.peek());
    field.current!.value = `${location.href.replace(/#.*/s, "")}#${fragment}`;
    await copyFrom(field.current!);
    return "Copied the link, which holds the texts too.";
  };
  return (
    <Part title="Link to this view">
      <button type="button" aria-disabled={work.busy.value} onClick={() => run(work, copy)}>
        Copy link
      </button>
      <textarea ref={field} class="unseen" readOnly tabIndex={-1} aria-hidden="true" />
    </Part>
  );
}

function Numbers({ overview, work }: { overview: Overview; work: Work }) {
  const store = useStore();
  const { source } = store;
  const [layer] = store.current.value;
  const wanted = useSignal<"layer" | "chosen" | "all" | null>(null);
  const layers = {
    layer: [layer],
    chosen: layersOf(store),
    all: Array.from({ length: overview.layers }, (_, i) => i),
  };
  // Of what is looked at, nothing is left out unless that is chosen.
  const choice = useComputed(() => wanted.value ?? (layersOf(store).length > 1 ? "chosen" : "layer"));
  const npz = async (): Promise<string> => {
    const { dtype: _, ...exact } = layersFields(overview.subject, layers[choice.value]);
    const file = await source.npz!(inputsOf(overview.subject), exact);
    saveFile(file, fileName(store, "npz"));
    return `Saved ${size(file.size)}, in single precision.`;
  };
  const html = async (): Promise<string> => {
    const own = layers[choice.value];
    if (!fitsWhole(overview.tokens, overview.heads, store.limit.peek()))
      throw new Error("The text is too long: enter a shorter one.");
    const refused = tooLarge(estimatedBytes(overview, own.length));
    if (refused !== null) throw new Error(refused);
    const text = await htmlFile(store, overview, own, (done) => {
      work.told.value = `Layer ${done + 1} of ${own.length}…`;
    });
    const file = new Blob([text], { type: "text/html" });
    const late = tooLarge(file.size);
    if (late !== null) throw new Error(late);
    saveFile(file, fileName(store, "html"));
    return `Saved ${size(file.size)}. The page opens without a network.`;
  };
  return (
    <Part title="Maps">
      <select
        aria-label="Layers"
        value={choice.value}
        onChange={({ currentTarget }) => {
          wanted.value = currentTarget.value as typeof choice.value;
        }}
      >
        <option value="layer">layer {layer}</option>
        {layers.chosen.length > 1 && <option value="chosen">layers {layers.chosen.join(", ")}</option>}
        <option value="all">all layers</option>
      </select>
      {source.npz !== undefined && (
        <button type="button" aria-disabled={work.busy.value} onClick={() => run(work, npz)}>
          npz
        </button>
      )}
      <button type="button" aria-disabled={work.busy.value} onClick={() => run(work, html)}>
        HTML page
      </button>
    </Part>
  );
}

function Code({ overview }: { overview: Overview }) {
  const { source, current } = useStore();
  const language = useSignal<Language>("curl");
  const field = useRef<HTMLTextAreaElement>(null);
  const copied = useSignal(false);
  const code = codeOf(language.value, {
    url: source.url ?? DEFAULT_URL,
    inputs: inputsOf(overview.subject),
    options: layerFields(overview.subject, current.value[0]),
    keyed: source.keyed ?? false,
  });
  return (
    <Part title="Code that asks for this layer">
      <select
        aria-label="Language"
        value={language.value}
        onChange={({ currentTarget }) => {
          language.value = currentTarget.value as Language;
          copied.value = false;
        }}
      >
        {Object.entries(LANGUAGES).map(([name, title]) => (
          <option key={name} value={name}>
            {title}
          </option>
        ))}
      </select>
      <button
        type="button"
        onClick={async () => {
          await copyFrom(field.current!);
          copied.value = true;
        }}
      >
        {copied.value ? "Copied" : "Copy"}
      </button>
      <textarea ref={field} class="code" readOnly rows={8} aria-label="Code" value={code} spellcheck={false} />
    </Part>
  );
}

/** The layers of the chosen heads. */
function layersOf({ heads }: Store): number[] {
  return [...new Set(heads.value.map(([layer]) => layer))].sort((a, b) => a - b);
}

function fileName(store: Store, ending: string): string {
  const [layer, head] = store.current.peek();
  return `headlight-${store.fields.view.peek()}-L${layer}H${head}.${ending}`;
}

function size(bytes: number): string {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
