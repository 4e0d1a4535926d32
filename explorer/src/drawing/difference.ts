/** How two maps differ in the rows and columns that stand for each other. */

/** Some rows and columns of a map (size, size): (P, P + 1), of which the last column is the rest of each row. */
export function cut(map: Float32Array, size: number, indices: readonly number[]): Float32Array {
  const width = indices.length + 1;
  const part = new Float32Array(indices.length * width);
  indices.forEach((row, i) => {
    let rest = 0;
    for (let column = 0; column < size; column++) rest += map[row * size + column]!;
    indices.forEach((column, j) => {
      const weight = map[row * size + column]!;
      part[i * width + j] = weight;
      rest -= weight;
    });
    part[i * width + width - 1] = rest;
  });
  return part;
}

/** The second part minus the first, without the rests: (P, P). */
export function minus(second: Float32Array, first: Float32Array, count: number): Float32Array {
  const width = count + 1;
  return Float32Array.from({ length: count ** 2 }, (_, i) => {
    const at = Math.floor(i / count) * width + (i % count);
    return second[at]! - first[at]!;
  });
}

/**
 * How far two parts are from each other. Of shares it is the mean over the rows of the share of a row's weight that
 * goes elsewhere, from 0 to 1 (the total variation); else the mean size of the differences that are numbers.
 */
export function distance(first: Float32Array, second: Float32Array, count: number, shares: boolean): number {
  let sum = 0;
  let cells = 0;
  for (let i = 0; i < first.length; i++) {
    if (!shares && i % (count + 1) === count) continue;
    const size = Math.abs(second[i]! - first[i]!);
    if (!Number.isFinite(size)) continue;
    sum += size;
    cells += 1;
  }
  return sum / (shares ? 2 * count : cells);
}
