/** From a token back through the layers, along the edges with most of its weight. */

/** An edge of a layer, from a row to a column of its map. */
export interface Edge {
  readonly layer: number;
  readonly query: number;
  readonly key: number;
  /** Of all that flows, what goes along this edge. */
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

/** Of more tokens between two layers the strongest are followed: of a long input each costs a row. */
const MOST_TOKENS = 64;
/** What stays with a token, as in rollout (Abnar & Zuidema 2020, arXiv 2005.00928). */
const RESIDUAL = 0.5;

/**
 * A layer's edges out of tokens with these shares: of each token the strongest, so that every one keeps its own. Half
 * of a token stays with it, and half goes along its row, which is divided by its sum; columns that are left out get
 * nothing. With all edges of all layers this is rollout.
 */
export function stepBack(
  layer: number,
  after: Shares,
  rows: ReadonlyMap<number, Float32Array>,
  most: number,
  left: ReadonlySet<number> = new Set(),
): Step {
  const found: Edge[] = [];
  for (const [query, share] of after) {
    const mixed = mixedRow(rows.get(query)!, query, left);
    const keys = strongest(mixed, most).filter((key) => mixed[key]! > 0);
    found.push(...keys.map((key) => ({ layer, query, key, share: share * mixed[key]! })));
  }
  const wanted = new Set(mostOf(received(found), MOST_TOKENS));
  const best = found.filter(({ key }) => wanted.has(key)).sort((a, b) => b.share - a.share);
  const kept = best.reduce((all, { share }) => all + share, 0);
  // Each token gives all that it has to the edges that it keeps.
  const given = new Map<number, number>();
  for (const { query, share } of best) given.set(query, (given.get(query) ?? 0) + share);
  const total = [...given.keys()].reduce((all, query) => all + after.get(query)!, 0);
  const edges = best.map((edge) => ({
    ...edge,
    share: (edge.share * after.get(edge.query)!) / given.get(edge.query)! / total,
  }));
  return { edges, before: received(edges), kept };
}

/** A row without what is below 0 and without some columns, and with what stays. */
function mixedRow(row: Float32Array, query: number, left: ReadonlySet<number>): Float32Array {
  const own = row.map((weight, key) => (left.has(key) ? 0 : Math.max(weight, 0)));
  const sum = own.reduce((all, weight) => all + weight, 0);
  const mixed = own.map((weight) => (sum > 0 ? ((1 - RESIDUAL) * weight) / sum : 0));
  mixed[query] = mixed[query]! + (sum > 0 ? RESIDUAL : 1);
  return mixed;
}

function received(edges: readonly Edge[]): Map<number, number> {
  const shares = new Map<number, number>();
  for (const { key, share } of edges) shares.set(key, (shares.get(key) ?? 0) + share);
  return shares;
}

function mostOf(shares: Shares, count: number): number[] {
  const order = [...shares].sort((a, b) => b[1] - a[1]).slice(0, count);
  return order.map(([index]) => index);
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
