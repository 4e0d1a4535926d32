/** An explanation for as long as a view asks for it. */

import { useEffect } from "preact/hooks";
import type { Loaded } from "../../data/loader.js";
import { type Json, type Question, questionKey } from "../../data/why.js";
import { useStore } from "../../layout/context.js";

/** What the service answers, null to nothing. A sweep is many runs: once something else is asked it is cancelled. */
export function useExplanation<Q extends Question | null>(question: Q): Loaded<Json> | (Q & null) {
  const { loader } = useStore();
  const key = question && questionKey(question);
  useEffect(() => () => (key === null ? undefined : loader.cancel(key)), [loader, key]);
  return (question && loader.answer<Json>(question).value) as Loaded<Json> | (Q & null);
}
