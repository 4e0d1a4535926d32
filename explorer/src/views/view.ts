/** What a view is. */

import type { ComponentType } from "preact";
import type { Overview } from "../data/overview.js";

export interface ViewProps {
  /** What is looked at; a view is not shown before this is there. */
  readonly overview: Overview;
}

export interface ViewEntry {
  /** In links, so that it stays as it is. */
  readonly name: string;
  /** On its tab. */
  readonly title: string;
  readonly View: ComponentType<ViewProps>;
  /** Whether it stays while another run of the input loads, of which it shows more than `overview`. */
  readonly stays?: boolean;
}
