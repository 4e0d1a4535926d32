/** Says of an input that the model reads only a part of it. */

import type { ViewProps } from "./view.js";

export function Cut({ overview: { truncated, tokens, originalLength } }: ViewProps) {
  if (!truncated) return null;
  return (
    <p class="note above cut">
      The input was cut: the model reads {tokens.toLocaleString("en")} of {originalLength.toLocaleString("en")}{" "}
      tokens.
    </p>
  );
}
