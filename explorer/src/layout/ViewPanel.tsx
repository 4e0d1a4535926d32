/** The tabs, and the view that is chosen. */

import { useEffect, useRef } from "preact/hooks";
import type { Overview } from "../data/overview.js";
import { keyOf } from "../data/requests.js";
import { isLost } from "../data/source.js";
import { Cut } from "../views/cut.js";
import { VIEWS } from "../views/index.js";
import { useStore } from "./context.js";
import { Verdict } from "./Verdict.js";
import { Welcome } from "./Welcome.js";

/** What holds for the input in every view. */
function Notes({ overview }: { overview: Overview }) {
  const store = useStore();
  const begun = store.begun.value;
  return (
    <>
      <Cut overview={overview} />
      <Verdict subject={overview.subject} />
      {begun !== null && store.isBegun(begun) && <p class="note above">{begun.told}</p>}
    </>
  );
}

export function ViewPanel() {
  const store = useStore();
  const list = useRef<HTMLDivElement>(null);
  const { view } = store.fields;
  const chosen = VIEWS.find(({ name }) => name === view.value) ?? VIEWS[0]!;
  const overview = store.overview.value;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the tab that is chosen, once there are tabs.
  useEffect(() => {
    // `scrollIntoView` would scroll the page as well.
    const tab = list.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (tab) list.current!.scrollLeft = tab.offsetLeft - (list.current!.clientWidth - tab.offsetWidth) / 2;
  }, [chosen, overview === null]);
  const last = useRef<Overview | null>(null);
  last.current = store.shown.value ?? last.current;
  // What was loaded stays while the service is away.
  const stays = chosen.stays || (overview?.state === "failed" && isLost(overview.error));
  const shown = stays ? last.current : store.shown.value;
  if (overview === null) return store.model.value === null ? null : <Welcome />;
  const move = (by: number): void => {
    const next = VIEWS[(VIEWS.indexOf(chosen) + by + VIEWS.length) % VIEWS.length]!;
    view.value = next.name;
    list.current!.querySelector<HTMLElement>(`#tab-${next.name}`)!.focus();
  };
  const beginEntry = (): void => {
    const field = list.current?.parentElement?.querySelector<HTMLTextAreaElement>(".compare-entry.empty textarea");
    field?.focus();
    field?.select();
  };
  return (
    <section class="views">
      <div class="tabs" ref={list} role="tablist" aria-label="Views">
        {VIEWS.map(({ name, title }) => (
          <button
            type="button"
            role="tab"
            key={name}
            id={`tab-${name}`}
            aria-selected={name === chosen.name}
            aria-controls="view"
            tabIndex={name === chosen.name ? 0 : -1}
            onClick={(event) => {
              view.value = name;
              // Whoever comes with the mouse to compare writes next. With the keyboard, arrows go on to other tabs.
              if ((event as unknown as PointerEvent).pointerType === "mouse") setTimeout(beginEntry);
            }}
            onKeyDown={({ key }) => {
              if (key === "ArrowRight") move(1);
              if (key === "ArrowLeft") move(-1);
            }}
          >
            {title}
          </button>
        ))}
      </div>
      <div id="view" class={`view view-${chosen.name}`} role="tabpanel" aria-labelledby={`tab-${chosen.name}`}>
        {shown !== null && <Notes overview={shown} />}
        {shown !== null && (
          <chosen.View overview={shown} key={chosen.stays ? chosen.name : `${chosen.name} ${keyOf(shown.subject)}`} />
        )}
        {overview.state === "loading" && (!chosen.stays || shown === null) && <p class="note">Loading…</p>}
      </div>
    </section>
  );
}
