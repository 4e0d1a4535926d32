/** Which lines stand for a map: of each row the fewest keys that have a share of its mass. */

/** Lines of the rows of a map, row by row. */
export interface Lines {
  /** Those of row i are `starts[i]` to `starts[i + 1]` − 1, (N + 1,). */
  readonly starts: Uint32Array;
  readonly keys: Uint32Array;
  readonly weights: Float32Array;
}

/** Bins of a histogram: the exponent and the first four digits of a float32, which grow with the number. */
const SHIFT = 19;
const BINS = 1 << (31 - SHIFT);

/**
 * Choose the lines of a map (rows, size). Numbers below 0 have no mass. A histogram finds the weight to stop at, and
 * only keys of one bin are sorted, which takes an eighth of the time that sorting rows does.
 */
export function linesOf(map: Float32Array, size: number, mass: number): Lines {
  const rows = size === 0 ? 0 : map.length / size;
  const bits = new Uint32Array(map.buffer, map.byteOffset, map.length);
  const starts = new Uint32Array(rows + 1);
  const keys = new Uint32Array(map.length);
  const bins = new Float64Array(BINS);
  let count = 0;
  for (let row = 0; row < rows; row++) {
    const [first, end] = [row * size, (row + 1) * size];
    const { bin, missing } = stop(map, bits, first, end, mass, bins);
    const edge: number[] = [];
    for (let i = first; i < end; i++) {
      if (!(map[i]! > 0)) continue;
      const own = bits[i]! >>> SHIFT;
      if (own > bin) keys[count++] = i - first;
      else if (own === bin) edge.push(i);
    }
    edge.sort((a, b) => map[b]! - map[a]!);
    let left = missing;
    for (const i of edge) {
      // What rounding leaves of a mass is not worth a line.
      if (left <= 1e-9) break;
      keys[count++] = i - first;
      left -= map[i]!;
    }
    starts[row + 1] = count;
  }
  return { starts, keys: keys.slice(0, count), weights: weightsOf(map, size, starts, keys, count) };
}

/** The bin in which a row reaches its mass, and how much of the mass the bins above it leave. */
function stop(
  map: Float32Array,
  bits: Uint32Array,
  ...[first, end, mass, bins]: [number, number, number, Float64Array]
): { bin: number; missing: number } {
  bins.fill(0);
  let sum = 0;
  for (let i = first; i < end; i++) {
    const weight = map[i]!;
    if (!(weight > 0)) continue;
    sum += weight;
    const bin = bits[i]! >>> SHIFT;
    bins[bin] = bins[bin]! + weight;
  }
  let missing = mass * sum;
  let bin = BINS - 1;
  while (bin > 0 && bins[bin]! < missing) {
    missing -= bins[bin]!;
    bin--;
  }
  return { bin, missing };
}

function weightsOf(
  map: Float32Array,
  size: number,
  ...[starts, keys, count]: [Uint32Array, Uint32Array, number]
): Float32Array {
  const weights = new Float32Array(count);
  for (let row = 0; row + 1 < starts.length; row++) {
    for (let i = starts[row]!; i < starts[row + 1]!; i++) weights[i] = map[row * size + keys[i]!]!;
  }
  return weights;
}
