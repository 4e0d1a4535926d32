/** Bundles each test with what it imports, and runs them with Node's own runner. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const out = mkdtempSync(join(tmpdir(), "explorer-"));
const tests = readdirSync(HERE).filter((name) => name.endsWith(".test.ts"));
await build({
  entryPoints: tests.map((name) => join(HERE, name)),
  outdir: out,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  format: "esm",
  platform: "node",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
const { status } = spawnSync(
  process.execPath,
  ["--test", ...tests.map((name) => join(out, name.replace(/ts$/, "mjs")))],
  {
    stdio: "inherit",
  },
);
rmSync(out, { recursive: true });
process.exit(status ?? 1);
