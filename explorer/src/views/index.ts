/** The views, in the order of their tabs. */

import { CompareView } from "./compare/compare.js";
import { DatasetView } from "./dataset.js";
import { SINGLE_VIEWS } from "./single.js";
import type { ViewEntry } from "./view.js";

export const VIEWS: readonly ViewEntry[] = [
  ...SINGLE_VIEWS,
  { name: "compare", title: "Compare", View: CompareView },
  { name: "dataset", title: "Data set", View: DatasetView, stays: true },
];
