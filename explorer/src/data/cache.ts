/** Keeps what was loaded last, up to a number of bytes. */

export class Cache<V> {
  /** In the order of the last use, oldest first. */
  readonly #entries = new Map<string, { value: V; bytes: number }>();
  #bytes = 0;

  constructor(
    readonly maxBytes: number,
    /** Called with what makes room. */
    readonly dropped: (value: V) => void = () => undefined,
  ) {}

  get bytes(): number {
    return this.#bytes;
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  set(key: string, value: V, bytes: number): void {
    this.delete(key);
    this.#entries.set(key, { value, bytes });
    this.#bytes += bytes;
    for (const [oldest, entry] of this.#entries) {
      if (this.#bytes <= this.maxBytes || oldest === key) break;
      this.delete(oldest);
      this.dropped(entry.value);
    }
  }

  /** Record the size of what has arrived meanwhile. */
  resize(key: string, bytes: number): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.set(key, entry.value, bytes);
  }

  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
  }

  entries(): [string, V][] {
    return [...this.#entries].map(([key, { value }]) => [key, value]);
  }
}
