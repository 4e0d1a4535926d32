/**
 * Builds the page into service/explorer/static. `node build.mjs --watch` rebuilds when a source changes, and
 * `node build.mjs --order` first looks for an order of the modules in which the page is smaller, for five minutes.
 */

import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import * as terser from "terser";

const HERE = dirname(fileURLToPath(import.meta.url));
const ROOT = dirname(HERE);
const OUT = join(ROOT, "service", "explorer", "static");
const ORDER = "src/order.ts";
const FILES = ["package.json", "package-lock.json", "build.mjs", "tsconfig.json", "index.html"];

/** Every file that decides what the page is, relative to the repository root, sorted by its bytes. */
function sources() {
  const listed = (folder) =>
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name));
  const all = [
    ...FILES.map((name) => join(HERE, name)),
    ...listed(join(HERE, "src")),
    ...listed(join(ROOT, "client", "js", "src")),
  ];
  const names = all.map((path) => relative(ROOT, path).split(sep).join("/"));
  return names.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

/** 64 bits of SHA-256 over path, NUL, bytes, NUL of each source: a test compares it without Node. */
function checksum() {
  const hash = createHash("sha256");
  for (const name of sources()) {
    hash
      .update(name)
      .update("\0")
      .update(readFileSync(join(ROOT, name)))
      .update("\0");
  }
  return hash.digest("hex").slice(0, 16);
}

const common = {
  absWorkingDir: HERE,
  bundle: true,
  charset: "utf8",
  legalComments: "none",
  logLevel: "info",
  target: ["es2022", "chrome109", "firefox115", "safari16.4"],
};
const script = {
  ...common,
  entryPoints: [ORDER],
  outfile: join(OUT, "explorer.js"),
  format: "esm",
  // Calls of `h` take less room than what `react-jsx` makes, which tsconfig.json has for the checks alone.
  inject: ["src/jsx.ts"],
  tsconfigRaw: {
    compilerOptions: {
      jsx: "react",
      jsxFactory: "h",
      jsxFragmentFactory: "Fragment",
      useDefineForClassFields: false,
    },
  },
  // With whole names it would exceed the 75 kB, compressed, that a test allows the page.
  minify: true,
};
const style = {
  ...common,
  minify: true,
  entryPoints: ["src/styles/explorer.css"],
  outfile: join(OUT, "explorer.css"),
};

/** What terser makes of a module, which takes 2 kB less than esbuild's own, compressed. */
async function smaller(module, format) {
  const { code } = await terser.minify(module, {
    module: true,
    ecma: 2022,
    // `unsafe` writes `NaN` for `Number.NaN`, and the like; gzip finds more in statements than in conditions.
    compress: {
      passes: 3,
      unsafe: true,
      conditionals: false,
      if_return: false,
      lhs_constants: false,
      // Functions stay in their modules, which stand in a good order.
      reduce_funcs: false,
    },
    format,
  });
  return code;
}

if (process.argv.includes("--order"))
  await (await import("./order.mjs")).writeOrder(script, smaller, join(HERE, ORDER));
mkdirSync(OUT, { recursive: true });
copyFileSync(join(HERE, "index.html"), join(OUT, "index.html"));
if (process.argv.includes("--watch")) {
  for (const options of [script, style]) await (await esbuild.context(options)).watch();
} else {
  const preamble = `/* sources sha256:${checksum()} */`;
  const { outputFiles } = await esbuild.build({ ...script, write: false });
  writeFileSync(script.outfile, await smaller(outputFiles[0].text, { preamble }));
  await esbuild.build(style);
}
