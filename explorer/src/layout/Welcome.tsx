/** What the page shows before a text is entered. */

import { useStore } from "./context.js";
import { EXAMPLES } from "./examples.js";

export function Welcome() {
  const store = useStore();
  return (
    <section class="welcome">
      <h2>Where does a token look?</h2>
      <p>Enter a text above, or start from one of these.</p>
      <ul>
        {EXAMPLES.map(({ title, text, pair }) => (
          <li key={title}>
            <button type="button" onClick={() => store.enter(text, pair)}>
              <strong>{title}</strong>
              <span>{text}</span>
              {pair !== null && <span>{pair}</span>}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
