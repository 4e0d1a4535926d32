/** The views, in the order of their tabs. */

import { FingerprintsView } from "./fingerprints.js";
import { HeadsView } from "./heads.js";
import { FlowView } from "./maps/flow.js";
import { LinesView } from "./maps/lines.js";
import { MatrixView } from "./maps/matrix.js";
import { TableView } from "./table.js";
import { TextView } from "./text.js";
import type { ViewEntry } from "./view.js";

export const VIEWS: readonly ViewEntry[] = [
  { name: "text", title: "Text", View: TextView },
  { name: "heads", title: "All heads", View: HeadsView },
  { name: "fingerprints", title: "Fingerprints", View: FingerprintsView },
  { name: "lines", title: "Lines", View: LinesView },
  { name: "matrix", title: "Matrix", View: MatrixView },
  { name: "flow", title: "Flow", View: FlowView },
  { name: "table", title: "Table", View: TableView },
];
