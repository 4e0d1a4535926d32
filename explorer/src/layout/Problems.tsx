/** What went wrong, in the sentences of the service. */

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
            store.loader.forgetFailures();
            if (store.infoError.value !== null) void store.readInfo();
          }}
        >
          Try again
        </button>
      </div>
    );
  }
  if (store.info.value !== null && store.model.value === null) {
    return (
      <p class="problem" role="alert">
        None of the served models shows its attention in all of its layers: start the service with another model.
      </p>
    );
  }
  return null;
}

/** What an error says; that of the service without the parts that are for programs. */
export function sentence(error: Error): string {
  const { detail } = error as { detail?: unknown };
  return typeof detail === "string" && detail !== "" ? detail : error.message;
}
