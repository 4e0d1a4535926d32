/** Which part of a square map a frame shows, and how large. All lengths are CSS pixels, all places cells. */

/** The part of the canvas that cells lie in, beside the labels. */
export interface Frame {
  readonly width: number;
  readonly height: number;
}

export interface Camera {
  /** The side of a cell. */
  readonly cell: number;
  /** The column and the row at the top left corner; between two cells it is not whole. */
  readonly x: number;
  readonly y: number;
}

export interface Cell {
  readonly row: number;
  readonly column: number;
}

/** From this size of cells on, they have labels. */
export const LABELLED = 9;
const LARGEST_CELL = 64;
const LARGEST_FITTED = 40;

/** The size of cells at which the whole map is seen. */
export function fittedCell({ width, height }: Frame, size: number): number {
  return Math.min(Math.min(width, height) / Math.max(size, 1), LARGEST_FITTED);
}

/** The whole map. */
export function fitted(frame: Frame, size: number): Camera {
  return { cell: fittedCell(frame, size), x: 0, y: 0 };
}

/** The nearest camera that does not leave the map. */
export function within(camera: Camera, frame: Frame, size: number): Camera {
  const least = fittedCell(frame, size);
  const cell = Math.min(Math.max(camera.cell, least), Math.max(LARGEST_CELL, least));
  const limit = (at: number, length: number) => Math.min(Math.max(at, 0), Math.max(0, size - length / cell));
  return { cell, x: limit(camera.x, frame.width), y: limit(camera.y, frame.height) };
}

/** Enlarge about a place of the frame, which keeps its cell. */
export function zoomed(
  camera: Camera,
  factor: number,
  [px, py]: readonly [number, number],
  frame: Frame,
  size: number,
): Camera {
  const { cell } = within({ ...camera, cell: camera.cell * factor }, frame, size);
  const [x, y] = [camera.x + px / camera.cell - px / cell, camera.y + py / camera.cell - py / cell];
  return within({ cell, x, y }, frame, size);
}

/** Move the map by pixels, as a drag does. */
export function moved(camera: Camera, dx: number, dy: number, frame: Frame, size: number): Camera {
  return within({ ...camera, x: camera.x - dx / camera.cell, y: camera.y - dy / camera.cell }, frame, size);
}

/** Move as little as it takes to see a cell. */
export function revealing(camera: Camera, { row, column }: Cell, frame: Frame, size: number): Camera {
  const near = (at: number, start: number, length: number) =>
    Math.min(Math.max(start, at + 1 - length / camera.cell), at);
  const [x, y] = [near(column, camera.x, frame.width), near(row, camera.y, frame.height)];
  return within({ ...camera, x, y }, frame, size);
}

/** The cell at a place of the frame; null outside of the map. */
export function cellAt({ cell, x, y }: Camera, px: number, py: number, frame: Frame, size: number): Cell | null {
  if (px < 0 || py < 0 || px >= frame.width || py >= frame.height) return null;
  const [row, column] = [Math.floor(y + py / cell), Math.floor(x + px / cell)];
  return row < size && column < size ? { row, column } : null;
}

/** The first cell that is seen and the one after the last, along one axis. */
export function seen(start: number, length: number, cell: number, size: number): [first: number, end: number] {
  return [Math.floor(start), Math.min(size, Math.ceil(start + length / cell - 1e-9))];
}

/** What is seen, widened to whole tiles, so that small moves need nothing new. */
export function tiled([first, end]: readonly [number, number], tile: number, size: number): [number, number] {
  return [Math.floor(first / tile) * tile, Math.min(size, Math.ceil(end / tile) * tile)];
}
