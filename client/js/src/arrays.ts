/** Arrays of numbers with a shape, made of tensors in a file or of lists in JSON. */

export type Numbers = Float32Array | Int32Array | Int8Array | Uint8Array | Uint16Array;

/** Numbers in row-major order: the last axis is contiguous. */
export class Tensor<T extends Numbers = Float32Array> {
  constructor(
    readonly data: T,
    readonly shape: readonly number[],
  ) {
    if (data.length !== product(shape)) {
      throw new RangeError(`${data.length} numbers do not have the shape (${shape.join(", ")})`);
    }
  }

  /** The number at an index for each axis. Throws a RangeError for any other place. */
  at(...index: number[]): number {
    if (index.length !== this.shape.length) {
      throw new RangeError(`at(${index.join(", ")}) needs ${this.shape.length} indices, one for each axis`);
    }
    return this.row(...index)[0] as number;
  }

  /**
   * The numbers at an index for each of the first axes, as a view that shares memory: with all but one, a row.
   * Throws a RangeError for a place that does not exist.
   */
  row(...index: number[]): T {
    const rest = this.shape.slice(index.length);
    let start = 0;
    index.forEach((i, axis) => {
      const length = this.shape[axis] ?? 0;
      if (!Number.isInteger(i) || i < 0 || i >= length) {
        throw new RangeError(`index ${i} of axis ${axis} is not below ${length}`);
      }
      start = start * length + i;
    });
    const size = product(rest);
    return this.data.subarray(start * size, (start + 1) * size) as T;
  }
}

/** Lists, or a tensor, as float32; uint8 is multiplied by `scale`. Lists without rows have no shape of their own. */
export function floats(value: unknown, scale: number, shape?: readonly number[]): Tensor | null {
  if (value === undefined || value === null) return null;
  if (!(value instanceof Tensor)) {
    const [data, found] = flat(value);
    return new Tensor(Float32Array.from(data, numeric), shape ?? found);
  }
  const { data } = value as Tensor<Numbers>;
  return new Tensor(data instanceof Float32Array ? data : scaled(data, scale), shape ?? value.shape);
}

/** Lists, or a tensor, as integers, with k columns for each of `rows`. */
export function integers(value: unknown, rows: readonly number[]): Tensor<Int32Array> | null {
  if (value === undefined || value === null) return null;
  const data = value instanceof Tensor ? (value as Tensor<Int32Array>).data : Int32Array.from(flat(value)[0]);
  return new Tensor(data, columns(rows, data.length));
}

/** Complete the shape of rows by the number of columns, also where there are no rows. */
export function columns(rows: readonly number[], size: number): number[] {
  return [...rows, size / Math.max(1, product(rows))];
}

/** Lists within lists, and their shape, as far down as the first element of each goes. */
export function flat(value: unknown): [number[], number[]] {
  if (!Array.isArray(value)) throw new TypeError(`${JSON.stringify(value)} is not a list of numbers`);
  const shape: number[] = [];
  for (let level: unknown = value; Array.isArray(level); level = level[0]) shape.push(level.length);
  return [value.flat(shape.length - 1) as number[], shape];
}

/** Half precision (IEEE 754 binary16) as float32, which has every one of its values. */
export function fromFloat16(bits: Uint16Array): Float32Array {
  // Maps have millions of numbers: a table of all 65,536 converts them about fifty times as fast, and is kept.
  if (bits.length < HALVES && halves === undefined) return Float32Array.from(bits, fromHalf);
  halves ??= Float32Array.from({ length: HALVES }, (_, half) => fromHalf(half));
  const numbers = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) numbers[i] = halves[bits[i] as number] as number;
  return numbers;
}

const HALVES = 0x10000;
let halves: Float32Array | undefined;

function fromHalf(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return sign * (0x400 + fraction) * 2 ** (exponent - 25);
}

export function product(shape: readonly number[]): number {
  return shape.reduce((total, length) => total * length, 1);
}

/** JSON has null for what is not a number, which would be read as 0. */
function numeric(value: unknown): number {
  return typeof value === "number" ? value : NaN;
}

function scaled(data: Numbers, scale: number): Float32Array {
  const factor = data instanceof Uint8Array ? Math.fround(scale) : 1;
  return Float32Array.from(data, (number) => number * factor);
}
