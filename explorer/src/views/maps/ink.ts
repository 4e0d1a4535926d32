/** What drawings on canvases share: colours of the style sheet, and labels. */

import type { Unit } from "../../data/overview.js";

export const FONT = "system-ui, sans-serif";

/** What has a colour of the style sheet. */
export interface Inks {
  readonly ink: string;
  readonly soft: string;
  readonly paper: string;
  readonly accent: string;
  readonly line: string;
}

export function inksOf(element: Element): Inks {
  const style = getComputedStyle(element);
  const read = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return { ink: read("ink"), soft: read("soft"), paper: read("paper"), accent: read("accent"), line: read("line") };
}

/** A token on a line. */
export function labelOf({ label }: Unit): string {
  return label.replace(/\s+/g, "␣");
}

/** As much of a text as fits. */
export function cut(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  const characters = Array.from(text);
  while (characters.length > 1 && context.measureText(`${characters.join("")}…`).width > width) characters.pop();
  return `${characters.join("")}…`;
}
