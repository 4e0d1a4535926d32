/** What the last answer took, and what attention does not say. */

import { countText, timeText } from "../drawing/numbers.js";
import { useStore } from "./context.js";

export function Footer() {
  const { loader, source, fields, overview } = useStore();
  const last = loader.last.value;
  return (
    <footer class="footer">
      <p>
        <strong>Attention is not an explanation</strong> (
        <a href="https://arxiv.org/abs/1902.10186" rel="noreferrer" target="_blank">
          Jain &amp; Wallace 2019
        </a>
        ): it shows what a head mixes, not why the model answers as it does.
        {overview.value !== null && (
          <>
            {" "}
            <button type="button" class="link" onClick={() => (fields.view.value = "why")}>
              What does the score depend on?
            </button>
          </>
        )}
      </p>
      {source.useKey && <a href={new URL("docs", source.url).href}>API documentation</a>}
      <p class="timing">
        {loader.waiting.value > 0
          ? "Loading…"
          : last !== null && `${countText(last.tokens, "token")}, ${timeText(last.ms)}`}
      </p>
    </footer>
  );
}
