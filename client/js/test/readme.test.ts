/** README.md is a program that prints what it shows. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const MARK = "----\n";

test("the page prints what it shows", () => {
  const page = readFileSync(new URL("../README.md", import.meta.url), "utf-8");
  const blocks = [...page.matchAll(/```js\n(.+?)```\n```text\n(.+?)```/gs)];
  assert.equal(blocks.length, page.split("```js\n").length - 1);
  const program = blocks.map(([, code]) => code).join(`\nconsole.log("----");\n`);
  const file = fileURLToPath(new URL("readme.mjs", import.meta.url));
  writeFileSync(file, program.replace("http://127.0.0.1:8000", process.env.SERVICE_URL!));
  const printed = execFileSync(process.execPath, [file], { encoding: "utf-8", timeout: 60_000 });
  assert.deepEqual(printed.split(MARK), blocks.map(([, , shown]) => shown));
});
