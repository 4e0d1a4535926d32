/** What stands where an answer is on its way, or did not come. */

import type { Loaded } from "../../data/loader.js";
import { sentence } from "../../layout/Problems.js";

export function Waiting({ on, told = "Loading…" }: { on: Loaded<unknown>; told?: string }) {
  if (on.state === "failed") return <p class="problem">{sentence(on.error)}</p>;
  return (
    <label class="progress note">
      {told} <progress />
    </label>
  );
}
