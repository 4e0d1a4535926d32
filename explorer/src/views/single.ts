/** The views of one input to one model, in the order of their tabs. */

import { FingerprintsView } from "./fingerprints.js";
import { HeadsView } from "./heads.js";
import { LensView } from "./lens.js";
import { FlowView } from "./maps/flow.js";
import { LinesView } from "./maps/lines.js";
import { MatrixView } from "./maps/matrix.js";
import { NeuronView } from "./maps/neuron.js";
import { PairsView } from "./pairs/pairs.js";
import { TableView } from "./table.js";
import { TextView } from "./text.js";
import type { ViewEntry } from "./view.js";
import { WhyView } from "./why/why.js";

export const SINGLE_VIEWS: readonly ViewEntry[] = [
  { name: "text", title: "Text", View: TextView },
  { name: "heads", title: "All heads", View: HeadsView },
  { name: "fingerprints", title: "Fingerprints", View: FingerprintsView },
  { name: "lines", title: "Lines", View: LinesView },
  { name: "matrix", title: "Matrix", View: MatrixView },
  { name: "flow", title: "Flow", View: FlowView },
  { name: "neuron", title: "Neuron", View: NeuronView },
  { name: "pairs", title: "Pair blocks", View: PairsView },
  { name: "table", title: "Table", View: TableView },
  { name: "lens", title: "Logit lens", View: LensView },
  { name: "why", title: "Why", View: WhyView, stays: true },
];
