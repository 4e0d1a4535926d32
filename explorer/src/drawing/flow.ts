/** From a token back through the layers, along the edges with most of its weight. */

/** An edge of a layer, from a row to a column of its map. */
export interface Edge {
  readonly layer: number;
  readonly query: number;
  readonly key: number;
  /** Of what the shown edges of the layer carry, what goes along this one. */
  readonly share: number;
}

/** The share of each token at one place between layers. */
export type Shares = ReadonlyMap<number, number>;

export interface Flow {
  /** Before layer 0, after layer 0, …, after the last: what the flow begins with. */
  readonly columns: readonly Shares[];
  readonly edges: readonly Edge[];
  /** Of the whole weight, what the edges carry through all layers. */
  readonly carried: number;
}

/** A layer's part of a flow. */
export interface Step {
  readonly edges: readonly Edge[];
  readonly before: Shares;
  /** Of the weight of all edges out of these tokens, what the strongest carry. */
  readonly kept: number;
}

/**
 * The strongest edges of a layer out of tokens with these shares. A row is divided by its sum, so that no layer adds
 * weight.
 */
export function stepBack(layer: number, after: Shares, rows: ReadonlyMap<number, Float32Array>, most: number): Step {
  const edges: Edge[] = [];
  for (const [query, share] of after) {
    const row = rows.get(query)!;
    let sum = 0;
    for (const weight of row) sum += Math.max(weight, 0);
    if (sum === 0) continue;
    // Of a row no more edges can be among the strongest than are kept.
    for (const key of strongest(row, most)) {
      if (row[key]! > 0) edges.push({ layer, query, key, share: (share * row[key]!) / sum });
    }
  }
  const best = edges.sort((a, b) => b.share - a.share).slice(0, most);
  const kept = best.reduce((all, { share }) => all + share, 0);
  const before = new Map<number, number>();
  for (const { key, share } of best) before.set(key, (before.get(key) ?? 0) + share / kept);
  return { edges: best.map((edge) => ({ ...edge, share: edge.share / kept })), before, kept };
}

/** The tokens that stand in rows: all of a short input, else those that the flow touches, in their order. */
export function rowsOf({ columns }: Flow, size: number, mostWhole: number): number[] {
  if (size <= mostWhole) return Array.from({ length: size }, (_, i) => i);
  const touched = new Set(columns.flatMap((shares) => [...shares.keys()]));
  return [...touched].sort((a, b) => a - b);
}

/** Indices of the largest numbers, in no order. */
function strongest(row: Float32Array, count: number): number[] {
  if (row.length <= count) return Array.from(row, (_, i) => i);
  const floor = Float32Array.from(row).sort()[row.length - count]!;
  const above: number[] = [];
  const equal: number[] = [];
  row.forEach((weight, i) => {
    if (weight > floor) above.push(i);
    else if (weight === floor) equal.push(i);
  });
  return [...above, ...equal].slice(0, count);
}
