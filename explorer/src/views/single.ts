/** The views of one input to one model, in the order of their tabs. */

import { FingerprintsView } from "./fingerprints.js";
import { HeadsView } from "./heads.js";
import { PairsView } from "./pairs/pairs.js";
import { TableView } from "./table.js";
import { TextView } from "./text.js";
import type { ViewEntry } from "./view.js";

export const SINGLE_VIEWS: readonly ViewEntry[] = [
  { name: "text", title: "Text", View: TextView },
  { name: "heads", title: "All heads", View: HeadsView },
  { name: "fingerprints", title: "Fingerprints", View: FingerprintsView },
  { name: "pairs", title: "Pair blocks", View: PairsView },
  { name: "table", title: "Table", View: TableView },
];
