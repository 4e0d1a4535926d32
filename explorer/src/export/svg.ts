/** What is seen of a view as SVG: texts stay texts, and canvases are drawn again as vectors where they can be. */

import { drawnInto, pixelDensity } from "../views/canvas.js";
import { drawnCanvas, MOST_CELLS, type Place } from "./cells.js";
import { box, MOST_LINES, Recorder } from "./recorder.js";
import { wrapped } from "./title.js";
import { escaped, round } from "./xml.js";

export interface Picture {
  readonly svg: string;
  readonly width: number;
  readonly height: number;
}

export interface Wanted {
  /** Pixels a CSS pixel of canvases that become images. */
  readonly density: number;
  /** Above the picture, and its name. */
  readonly title: string;
  /** Whether hints and the tables beside are left out. */
  readonly figure: boolean;
  /** The width on paper; null is as many CSS pixels as on the screen. */
  readonly mm: number | null;
}

/** Fields and buttons of a view are left out: they say nothing in a picture. */
const LEFT_OUT =
  ".view-tools, form, input, select, textarea, progress, .unseen, noscript, button:not(.cell, table button)";
/** Hints, and tables beside what is shown. */
const BESIDE =
  ".note:not(.pairs-legend), .told, .problem, .row-table, .head-panel, .differences, .ranked, .edge-weight";
const MARGIN = 16;
const TITLE_PIXELS = 14;
/** Maps that draw themselves become vectors up to this many pixels in all. */
const MOST_IN_ALL = 2 * MOST_CELLS;
/** A shadow within an element along its lower edge, or its upper one. */
const BAR = /(rgba?\([^)]*\)) 0px (-?)([\d.]+)px 0px 0px inset/g;

/** Draw an element with all that it contains, and no empty room around it. */
export async function pictureOf(element: HTMLElement, wanted: Wanted): Promise<Picture> {
  const canvases = [...element.querySelectorAll("canvas")].filter(shown);
  const recorders = await record(canvases);
  try {
    pixelDensity.value = wanted.density;
    await drawn();
    return new Walk(element, recorders, wanted).picture();
  } finally {
    pixelDensity.value = null;
  }
}

/** Have the views draw into recorders; canvases that need something else, or too many lines, are left out. */
async function record(canvases: readonly HTMLCanvasElement[]): Promise<Map<HTMLCanvasElement, Recorder>> {
  const recorders = new Map<HTMLCanvasElement, Recorder>();
  try {
    for (const [i, canvas] of canvases.entries()) {
      // Thumbnails draw themselves, a pixel for each weight: they stay images.
      if (canvas.classList.contains("map")) continue;
      const recorder = new Recorder(canvas, `c${i}`);
      drawnInto.value = { canvas, context: recorder.asContext() };
      await drawn();
      if (recorder.complete && recorder.parts.length > 0 && recorder.lines <= MOST_LINES) {
        recorders.set(canvas, recorder);
      }
    }
  } finally {
    drawnInto.value = null;
    await drawn();
  }
  return recorders;
}

/** Views draw soon after a signal has changed, at the latest before the next frame. */
function drawn(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, 50);
  });
}

function shown(element: Element): boolean {
  const { width, height } = element.getBoundingClientRect();
  return width > 0 && height > 0;
}

/** One walk over an element and its descendants. */
class Walk {
  readonly #parts: string[] = [];
  /** What was drawn lies within these, in pixels of the window. */
  readonly #bounds = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  /** Pixels of maps that became vectors. */
  #cells = 0;
  readonly #measuring = new OffscreenCanvas(1, 1).getContext("2d")!;

  constructor(
    readonly root: HTMLElement,
    readonly recorders: ReadonlyMap<HTMLCanvasElement, Recorder>,
    readonly wanted: Wanted,
  ) {}

  picture(): Picture {
    this.#element(this.root);
    const paper = getComputedStyle(this.root.closest(".headlight")!).backgroundColor;
    const titled = this.#title();
    const { left, top, right, bottom } = this.#bounds;
    const [x, y] = [Math.floor(left - MARGIN), Math.floor(top - MARGIN)];
    const [width, height] = [Math.ceil(right + MARGIN) - x, Math.ceil(bottom + MARGIN) - y];
    const ground = `<rect width="${width}" height="${height}" fill="${paper}"/>`;
    const { mm, title } = this.wanted;
    const size = (pixels: number) => (mm === null ? pixels : `${round((mm * pixels) / width)}mm`);
    const svg =
      `<svg xmlns="http://www.w3.org/2000/svg" width="${size(width)}" height="${size(height)}" ` +
      `viewBox="0 0 ${width} ${height}"><title>${escaped(title)}</title>${ground}` +
      `<g transform="translate(${-x} ${-y})">${titled}${this.#parts.join("\n")}</g></svg>`;
    return { svg, width, height };
  }

  /** The title in lines above what was drawn. */
  #title(): string {
    const { left, right, top } = this.#bounds;
    const { fontFamily, color } = getComputedStyle(this.root);
    this.#measuring.font = `600 ${TITLE_PIXELS}px ${fontFamily}`;
    const width = (line: string) => this.#measuring.measureText(line).width;
    const lines = wrapped(this.wanted.title, Math.max(right - left, 240), width);
    return lines
      .map((line, i) => {
        const y = top - MARGIN - 1.4 * TITLE_PIXELS * (lines.length - 1 - i);
        this.#grow(left, y - TITLE_PIXELS, width(line), TITLE_PIXELS);
        return (
          `<text x="${round(left)}" y="${round(y)}" font-family="${escaped(fontFamily)}" font-weight="600" ` +
          `font-size="${TITLE_PIXELS}" fill="${color}">${escaped(line)}</text>`
        );
      })
      .join("");
  }

  #element(element: Element): void {
    if (element.matches(this.wanted.figure ? `${LEFT_OUT}, ${BESIDE}` : LEFT_OUT)) return;
    const style = getComputedStyle(element);
    if (style.display === "none" || style.visibility === "hidden") return;
    if (element instanceof HTMLCanvasElement) this.#canvas(element);
    else if (element instanceof SVGSVGElement) this.#drawing(element);
    else {
      this.#boxes(element, style);
      for (const child of element.childNodes) {
        if (child instanceof Element) this.#element(child);
        else if (child instanceof Text) this.#text(child, style);
      }
    }
  }

  /** The ground of an element, its lines, and the bars of a token. */
  #boxes(element: Element, style: CSSStyleDeclaration): void {
    // The last shadow is the lowest.
    const bars = [...style.boxShadow.matchAll(BAR)].reverse();
    const outline = style.outlineStyle === "solid" ? Number.parseFloat(style.outlineWidth) : 0;
    const radius = Number.parseFloat(style.borderTopLeftRadius) || 0;
    for (const { left: x, top: y, width, height } of element.getClientRects()) {
      if (!/^rgba\(.*, 0\)$|^transparent$/.test(style.backgroundColor)) {
        this.#rect([x, y, width, height], `rx="${radius}" fill="${style.backgroundColor}"`);
      }
      for (const [, colour, lower, bar] of bars)
        this.#rect([x, lower ? y + height - Number(bar) : y, width, Number(bar)], `fill="${colour}"`);
      if (outline > 0) {
        const around = outline / 2 + (Number.parseFloat(style.outlineOffset) || 0);
        this.#rect(
          [x - around, y - around, width + 2 * around, height + 2 * around],
          `rx="${radius}" fill="none" stroke="${style.outlineColor}" stroke-width="${outline}"`,
        );
      }
      this.#borders([x, y, width, height], style, radius);
    }
  }

  #borders([x, y, width, height]: Place, style: CSSStyleDeclaration, radius: number): void {
    const [above, below] = [style.borderTopWidth, style.borderBottomWidth].map((one) => Number.parseFloat(one) || 0);
    const stroke = `stroke="${style.borderBottomColor}" stroke-width="${below}"`;
    if (above! > 0 && below! > 0 && style.borderBottomColor !== "rgba(0, 0, 0, 0)") {
      const half = below! / 2;
      this.#rect([x + half, y + half, width - below!, height - below!], `rx="${radius}" fill="none" ${stroke}`);
    } else if (below! > 0) {
      const at = round(y + height - below! / 2);
      this.#parts.push(`<path d="M${round(x)} ${at}h${round(width)}" ${stroke}/>`);
    }
  }

  #rect([x, y, width, height]: Place, look: string): void {
    if (width <= 0 || height <= 0) return;
    this.#grow(x, y, width, height);
    this.#parts.push(`<rect ${box(x, y, width, height)} ${look}/>`);
  }

  /** A text, line by line. */
  #text(node: Text, style: CSSStyleDeclaration): void {
    const text = node.data;
    if (text.trim() === "") return;
    const range = document.createRange();
    range.setStart(node, text.search(/\S/));
    range.setEnd(node, text.trimEnd().length);
    if (range.getClientRects().length <= 1) {
      this.#line(text.trim(), range.getBoundingClientRect(), style);
      return;
    }
    for (const { 0: word, index } of text.matchAll(/\S+/g)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      this.#line(word, range.getBoundingClientRect(), style);
    }
  }

  #line(text: string, rect: DOMRect, style: CSSStyleDeclaration): void {
    if (rect.width === 0) return;
    const { left: x, top: y, width, height } = rect;
    this.#grow(x, y, width, height);
    this.#measuring.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const { fontBoundingBoxAscent: above, fontBoundingBoxDescent: below } = this.#measuring.measureText(text);
    const baseline = y + (height * above) / (above + below);
    this.#parts.push(
      `<text x="${round(x)}" y="${round(baseline)}" textLength="${round(width)}" lengthAdjust="spacingAndGlyphs" ` +
        `font-family="${escaped(style.fontFamily)}" font-size="${Number.parseFloat(style.fontSize)}" ` +
        `font-weight="${style.fontWeight}" fill="${style.color}">${escaped(text)}</text>`,
    );
  }

  #canvas(canvas: HTMLCanvasElement): void {
    const { left: x, top: y, width, height } = canvas.getBoundingClientRect();
    const recorder = this.recorders.get(canvas);
    if (recorder !== undefined) {
      const { x: dx, y: dy, width: across, height: down } = extentOf(recorder.parts, width, height);
      this.#grow(x + dx, y + dy, across, down);
      this.#parts.push(`<svg ${box(x, y, width, height)} overflow="hidden">`, ...recorder.parts, "</svg>");
      return;
    }
    this.#grow(x, y, width, height);
    const own = canvas.classList.contains("map");
    if (own) this.#cells += canvas.width * canvas.height;
    this.#parts.push(drawnCanvas(canvas, [x, y, width, height], own && this.#cells <= MOST_IN_ALL ? "cells" : own));
  }

  /** The shapes of an SVG element, with the colours that the stylesheet gives them. */
  #drawing(drawing: SVGSVGElement): void {
    const { left, top, width, height } = drawing.getBoundingClientRect();
    this.#grow(left, top, width, height);
    for (const shape of drawing.querySelectorAll<SVGGraphicsElement>("rect, circle, path, line, text")) {
      const matrix = shape.getScreenCTM();
      if (matrix === null) continue;
      const style = getComputedStyle(shape);
      const copy = shape.cloneNode(true) as SVGElement;
      copy.removeAttribute("class");
      for (const name of ["fill", "stroke", "stroke-width", "opacity"]) {
        copy.setAttribute(name, style.getPropertyValue(name));
      }
      const { a, b, c, d, e, f } = matrix;
      const moved = [a, b, c, d, e, f].map((number) => Math.round(1e4 * number) / 1e4);
      this.#parts.push(
        `<g transform="matrix(${moved.join(" ")})">${new XMLSerializer().serializeToString(copy)}</g>`,
      );
    }
  }

  /** The picture shows this too. */
  #grow(x: number, y: number, width: number, height: number): void {
    const { left, top, right, bottom } = this.#bounds;
    Object.assign(this.#bounds, {
      left: Math.min(left, x),
      top: Math.min(top, y),
      right: Math.max(right, x + width),
      bottom: Math.max(bottom, y + height),
    });
  }
}

/** Where something was drawn within a canvas: a map does not fill its frame. */
function extentOf(parts: readonly string[], width: number, height: number): DOMRect {
  const probe = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  probe.innerHTML = `<g>${parts.join("")}</g>`;
  document.body.append(probe);
  const { x, y, right, bottom } = DOMRect.fromRect((probe.firstChild as SVGGElement).getBBox());
  probe.remove();
  const [left, top] = [Math.max(x, 0), Math.max(y, 0)];
  return new DOMRect(left, top, Math.min(right, width) - left, Math.min(bottom, height) - top);
}
