/**
 * Finds an order of the modules in which the page is small, and writes it to src/order.ts: `node build.mjs --order`.
 * gzip finds again what it has seen in the last 32 kB, so modules that are alike are best near each other. Any order
 * works: a module that is not listed stands where it is first imported.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

/** The longer it takes, the less is gained. */
const MS = 300_000;
const HEADING = `/** All modules, in an order in which the page is small, which \`order.mjs\` has found; and what they export. */

`;
const END = `
export * from "./main.js";
export { default } from "./main.js";
`;
const MAIN = "src/main.ts";

/** Each module as it stands in the page, and what it imports. */
async function modulesOf(options, smaller) {
  const { outputFiles, metafile } = await esbuild.build({
    ...options,
    entryPoints: [MAIN],
    minify: false,
    minifySyntax: true,
    minifyIdentifiers: true,
    metafile: true,
    write: false,
  });
  const marked = outputFiles[0].text.replace(/^\/\/ (.*\.(?:tsx?|mjs|js))$/gm, "/*!$1*/");
  const parts = (await smaller(marked, { comments: /^!/ })).split(/\/\*!(.*?)\*\/\n?/).slice(1);
  const texts = new Map(parts.flatMap((name, i) => (i % 2 === 0 ? [[name, parts[i + 1]]] : [])));
  const imports = Object.entries(metafile.inputs).map(([name, one]) => [name, one.imports.map(({ path }) => path)]);
  return { texts, imports: new Map(imports) };
}

/** The order in which modules stand if another imports them so: before each stands what it imports. */
function standing(order, { texts, imports }) {
  const found = [];
  const seen = new Set();
  const visit = (name) => {
    if (seen.has(name)) return;
    seen.add(name);
    imports.get(name)?.forEach(visit);
    if (texts.has(name)) found.push(name);
  };
  [...order, MAIN].forEach(visit);
  return found;
}

/** Some modules that stand together, moved elsewhere; the same each time. */
function mover() {
  let state = 7;
  const below = (limit) => {
    state = (state * 48271) % 0x7fffffff;
    return state % limit;
  };
  return (order) => {
    const next = [...order];
    const taken = next.splice(below(next.length), 1 + below(2) * below(8));
    next.splice(below(next.length + 1), 0, ...taken);
    return next;
  };
}

/** Only these can be imported for their order alone: the client says that its modules do nothing by themselves. */
function isOurs(name) {
  return name.startsWith("src/") && name !== MAIN;
}

/** What a file imports for its order alone. */
function listedIn(file) {
  const names = [...readFileSync(file, "utf8").matchAll(/^import "\.\/(.*)\.js";$/gm)].map(
    ([, name]) => `src/${name}`,
  );
  return names.flatMap((name) => [`${name}.ts`, `${name}.tsx`]);
}

/** Write the order, beginning with the one that is there. */
export async function writeOrder(options, smaller, file) {
  const modules = await modulesOf(options, smaller);
  const bytesOf = (order) => {
    const all = standing(order, modules).map((name) => modules.texts.get(name));
    return gzipSync(all.join(""), { level: 9 }).length;
  };
  const moved = mover();
  let order = standing(listedIn(file), modules).filter(isOurs);
  let bytes = bytesOf(order);
  console.log(`${bytes} bytes`);
  for (const until = Date.now() + MS; Date.now() < until; ) {
    const next = moved(order);
    const own = bytesOf(next);
    if (own <= bytes) [order, bytes] = [next, own];
  }
  console.log(`${bytes} bytes`);
  const lines = standing(order, modules)
    .filter(isOurs)
    .map((name) => `import ".${name.slice(3).replace(/tsx?$/, "js")}";\n`);
  writeFileSync(file, HEADING + lines.join("") + END);
}
