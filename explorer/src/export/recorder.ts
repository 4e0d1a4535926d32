/**
 * Records what is drawn on a canvas as SVG: a stand-in for its context. It knows what the views use; after anything
 * else it is not `complete`, and the canvas is exported as an image.
 */

import { drawnCanvas } from "./cells.js";
import { escaped, round } from "./xml.js";

/** More lines than this in one file are slow to draw, and to edit. */
export const MOST_LINES = 5_000;

interface Look {
  /** As an attribute has it. */
  transform: string;
  fillStyle: string;
  strokeStyle: string;
  lineWidth: number;
  lineCap: string;
  globalAlpha: number;
  font: string;
  textAlign: string;
  textBaseline: string;
  imageSmoothingEnabled: boolean;
  clipId: string | null;
}

const ANCHORS: Record<string, string> = { left: "start", start: "start", center: "middle", right: "end", end: "end" };
/** How far below its anchor a baseline lies, in font sizes. */
const BASELINES: Record<string, number> = { alphabetic: 0, middle: 0.35, top: 0.8, hanging: 0.8, bottom: -0.2 };

export class Recorder {
  readonly parts: string[] = [];
  lines = 0;
  complete = true;
  #look: Look = {
    transform: "",
    fillStyle: "#000",
    strokeStyle: "#000",
    lineWidth: 1,
    lineCap: "butt",
    globalAlpha: 1,
    font: "10px sans-serif",
    textAlign: "start",
    textBaseline: "alphabetic",
    imageSmoothingEnabled: true,
    clipId: null,
  };
  readonly #saved: Look[] = [];
  #path = "";
  #moves = 0;

  /** `name` starts the ids of this drawing; `canvas` is the real one, which measures texts. */
  constructor(
    readonly canvas: HTMLCanvasElement,
    readonly name: string,
  ) {}

  /** As the context that views draw in. */
  asContext(): CanvasRenderingContext2D {
    return new Proxy(this, {
      get: (recorder, key) => {
        if (key in recorder.#look) return recorder.#look[key as keyof Look];
        const value: unknown = Reflect.get(recorder, key, recorder);
        if (value === undefined) recorder.complete = false;
        return value === undefined ? () => undefined : typeof value === "function" ? value.bind(recorder) : value;
      },
      set: (recorder, key, value) => {
        if (!(key in recorder.#look)) recorder.complete = false;
        else (recorder.#look as unknown as Record<string, unknown>)[key as string] = value;
        return true;
      },
    }) as unknown as CanvasRenderingContext2D;
  }

  save(): void {
    this.#saved.push({ ...this.#look });
  }
  restore(): void {
    this.#look = this.#saved.pop() ?? this.#look;
  }
  translate(x: number, y: number): void {
    this.#look.transform += `translate(${round(x)} ${round(y)})`;
  }
  rotate(angle: number): void {
    this.#look.transform += `rotate(${round((180 / Math.PI) * angle)})`;
  }
  measureText(text: string): TextMetrics {
    const context = this.canvas.getContext("2d")!;
    context.save();
    context.font = this.#look.font;
    const measured = context.measureText(text);
    context.restore();
    return measured;
  }

  beginPath(): void {
    this.#path = "";
    this.#moves = 0;
  }
  moveTo(x: number, y: number): void {
    this.#path += `M${round(x)} ${round(y)}`;
    this.#moves += 1;
  }
  lineTo(x: number, y: number): void {
    // As on a canvas, the first line starts where it ends.
    this.#path += `${this.#path === "" ? "M" : "L"}${round(x)} ${round(y)}`;
  }
  bezierCurveTo(...numbers: number[]): void {
    this.#path += `C${numbers.map(round).join(" ")}`;
  }
  closePath(): void {
    this.#path += "Z";
  }
  rect(x: number, y: number, width: number, height: number): void {
    this.#path += `M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${round(-width)}Z`;
  }
  arc(x: number, y: number, radius: number, from: number, to: number): void {
    if (Math.abs(to - from) < 2 * Math.PI - 1e-6) this.complete = false;
    const [r, d] = [round(radius), round(2 * radius)];
    this.#path += `M${round(x - radius)} ${round(y)}a${r} ${r} 0 1 0 ${d} 0a${r} ${r} 0 1 0 -${d} 0Z`;
  }
  fill(path?: unknown): void {
    this.#draw(path, `fill="${escaped(this.#look.fillStyle)}"`);
  }
  stroke(path?: unknown): void {
    this.lines += Math.max(this.#moves, 1);
    this.#draw(path, this.#strokeLook());
  }
  clip(path?: unknown): void {
    if (path !== undefined) this.complete = false;
    const id = `${this.name}-clip-${this.parts.length}`;
    const nested = this.#look.clipId === null ? "" : ` clip-path="url(#${this.#look.clipId})"`;
    this.parts.push(`<clipPath id="${id}"${nested}><path d="${this.#path}"${this.#transform()}/></clipPath>`);
    this.#look.clipId = id;
  }

  clearRect(): void {}
  fillRect(x: number, y: number, width: number, height: number): void {
    this.#element("rect", `${box(x, y, width, height)} fill="${escaped(this.#look.fillStyle)}"`);
  }
  strokeRect(x: number, y: number, width: number, height: number): void {
    this.#element("rect", `${box(x, y, width, height)} ${this.#strokeLook()}`);
  }
  fillText(text: string, x: number, y: number, most?: number): void {
    const { font, fillStyle, textAlign, textBaseline } = this.#look;
    const size = Number(/([\d.]+)px/.exec(font)?.[1] ?? 10);
    const [before, family = "sans-serif"] = font.split(/[\d.]+px\s*/);
    const weight = /bold|\d{3}/.exec(before ?? "")?.[0];
    const narrow = most !== undefined && this.measureText(text).width > most;
    this.#element(
      "text",
      `x="${round(x)}" y="${round(y + size * (BASELINES[textBaseline] ?? 0))}" font-size="${size}" ` +
        `font-family="${escaped(family)}"${weight ? ` font-weight="${weight}"` : ""} ` +
        `text-anchor="${ANCHORS[textAlign] ?? "start"}"${narrow ? ` textLength="${round(most)}"` : ""}` +
        `${narrow ? ' lengthAdjust="spacingAndGlyphs"' : ""} fill="${escaped(fillStyle)}"`,
      escaped(text),
    );
  }

  drawImage(image: CanvasImageSource, ...numbers: number[]): void {
    const { width, height } = image as HTMLCanvasElement;
    const [sx, sy, sw, sh] = numbers.length === 8 ? numbers : [0, 0, width, height];
    const [x, y, w = width, h = height] = numbers.length === 8 ? numbers.slice(4) : numbers;
    const cut = document.createElement("canvas");
    cut.width = Math.max(1, Math.round(sw!));
    cut.height = Math.max(1, Math.round(sh!));
    cut.getContext("2d")!.drawImage(image, sx!, sy!, sw!, sh!, 0, 0, cut.width, cut.height);
    this.#add((look) => drawnCanvas(cut, [x!, y!, w, h], this.#look.imageSmoothingEnabled ? false : "cells", look));
  }

  #draw(path: unknown, look: string): void {
    if (path !== undefined) this.complete = false;
    if (this.#path !== "") this.#element("path", `d="${this.#path}" ${look}`);
  }

  #strokeLook(): string {
    const { strokeStyle, lineWidth, lineCap } = this.#look;
    const cap = lineCap === "butt" ? "" : ` stroke-linecap="${lineCap}"`;
    return `fill="none" stroke="${escaped(strokeStyle)}" stroke-width="${round(lineWidth)}"${cap}`;
  }

  #element(name: string, attributes: string, content = ""): void {
    this.#add((look) => `<${name} ${attributes}${look}>${content}</${name}>`);
  }

  /** Add what is drawn with the attributes of the look that all elements have. */
  #add(draw: (look: string) => string): void {
    const { globalAlpha, clipId } = this.#look;
    const alpha = globalAlpha === 1 ? "" : ` opacity="${round(globalAlpha)}"`;
    const drawn = draw(alpha + this.#transform());
    // The clip was set before the transform: it applies around it.
    this.parts.push(clipId === null ? drawn : `<g clip-path="url(#${clipId})">${drawn}</g>`);
  }

  #transform(): string {
    const { transform } = this.#look;
    return transform && ` transform="${transform}"`;
  }
}

/** The attributes of a rectangle. */
export function box(x: number, y: number, width: number, height: number): string {
  return `x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`;
}
