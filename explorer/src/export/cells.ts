/** Maps as vectors: programs that draw SVG blur images that are enlarged. */

import { escaped, round } from "./xml.js";

/** A larger map stays an image. */
export const MOST_CELLS = 128 ** 2;

export type Place = readonly [x: number, y: number, width: number, height: number];
type Pixels = Pick<ImageData, "data" | "width" | "height">;

/** A path for each colour, of the runs of pixels in a row that have it. */
export function cellsOf({ data, width, height }: Pixels, [x, y, across, down]: Place): string {
  const words = new Uint32Array(data.buffer, data.byteOffset, width * height);
  const paths = new Map<number, string>();
  const [w, h] = [across / width, down / height];
  for (let row = 0; row < height; row++) {
    const [top, bottom] = [round(y + row * h), round(y + (row + 1) * h)];
    for (let first = 0, end = 0; first < width; first = end) {
      const word = words[row * width + first]!;
      while (end < width && words[row * width + end] === word) end++;
      const run = `M${round(x + first * w)} ${top}H${round(x + end * w)}V${bottom}H${round(x + first * w)}Z`;
      paths.set(word, (paths.get(word) ?? "") + run);
    }
  }
  const drawn = [...paths].map(([word, path]) => {
    const [r, g, b, a] = new Uint8Array(Uint32Array.of(word).buffer);
    return a === 0
      ? ""
      : `<path fill="rgb(${r},${g},${b})"${a! < 255 ? ` fill-opacity="${round(a! / 255)}"` : ""} d="${path}"/>`;
  });
  return `<g shape-rendering="crispEdges">${drawn.join("")}</g>`;
}

/** A canvas in a picture: as an image, of which pixels may stay sharp, or as vectors if it has few enough of them. */
export function drawnCanvas(
  canvas: HTMLCanvasElement,
  place: Place,
  sharp: boolean | "cells",
  attributes = "",
): string {
  const { width, height } = canvas;
  if (sharp === "cells" && width * height <= MOST_CELLS) {
    return `<g${attributes}>${cellsOf(pixelsOf(canvas), place)}</g>`;
  }
  const [x, y, w, h] = place.map(round);
  return (
    `<image x="${x}" y="${y}" width="${w}" height="${h}" preserveAspectRatio="none"` +
    `${sharp ? ' image-rendering="pixelated"' : ""}${attributes} href="${escaped(canvas.toDataURL("image/png"))}"/>`
  );
}

/** Read from a copy: a canvas that is read often is one that browsers warn of. */
function pixelsOf(canvas: HTMLCanvasElement): ImageData {
  const { width, height } = canvas;
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [width, height];
  const context = copy.getContext("2d", { willReadFrequently: true })!;
  context.drawImage(canvas, 0, 0);
  return context.getImageData(0, 0, width, height);
}
