/** The views, in the order of their tabs. */

import { TextView } from "./text.js";
import type { ViewEntry } from "./view.js";

export const VIEWS: readonly ViewEntry[] = [{ name: "text", title: "Text", View: TextView }];
