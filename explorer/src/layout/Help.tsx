/** The keys, and how to read the page. */

const KEYS: readonly (readonly [string, string])[] = [
  ["← →", "the token before or after, in a list of tokens; in the grid also ↑ ↓"],
  ["Enter, Space", "pin a token, or open a head; with Shift beside the others"],
  ["[ ]", "the layer before or after"],
  [", .", "the head before or after"],
  ["/", "find a token"],
  ["Esc", "take out all pins"],
  ["+ - 0", "zoom a matrix; the arrow keys move it"],
  ["?", "this page"],
];

/** Open the help of the explorer that an element stands in: a notebook may show several, each in a tree of its own. */
export function openHelp(near: Element): void {
  near.closest(".headlight")?.querySelector<HTMLDialogElement>("dialog.help")?.showModal();
}

export function Help() {
  return (
    <dialog class="help" aria-labelledby="help-title">
      <h2 id="help-title">Help</h2>
      <p>
        Pin a token to see where it looks, or what looks at it. Shift adds tokens, whose weights are summed. Several
        heads are shown by their mean.
      </p>
      <dl>
        {KEYS.map(([keys, told]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{told}</dd>
          </div>
        ))}
      </dl>
      <p>The address holds all that you chose, the texts too. Browsers send that part to no server.</p>
      <form method="dialog">
        <button type="submit" class="main">
          Close
        </button>
      </form>
    </dialog>
  );
}
