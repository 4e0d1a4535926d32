/** What went wrong, in the sentences of the service. */

import { isLost, isRefused } from "../data/source.js";
import { useStore } from "./context.js";

export function Problems() {
  const store = useStore();
  const overview = store.overview.value;
  const error = store.infoError.value ?? (overview?.state === "failed" ? overview.error : null);
  if (error !== null && !store.needsKey.value) {
    return (
      <div class="problem" role="alert">
        <p>{sentence(error)}</p>
        <button
          type="button"
          onClick={() => {
            if (isRefused(error)) store.needsKey.value = true;
            else store.loader.forgetFailures();
            if (store.infoError.value !== null && !isRefused(error)) void store.readInfo();
          }}
        >
          {isRefused(error) ? "Enter a key" : "Try again"}
        </button>
      </div>
    );
  }
  if (store.info.value !== null && store.model.value === null) {
    return (
      <p class="problem" role="alert">
        None of the served models shows attention in all of its layers: start the service with another.
      </p>
    );
  }
  return null;
}

/** What an error says; that of the service without the parts that are for programs. */
export function sentence(error: Error): string {
  if (isRefused(error)) return "The service wants an API key, and has not got one that it knows.";
  if (isLost(error)) return "The service does not answer. This page asks again by itself, and keeps what it has.";
  const { detail } = error as { detail?: unknown };
  return typeof detail === "string" && detail !== "" ? detail : error.message;
}
