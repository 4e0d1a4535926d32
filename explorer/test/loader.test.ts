import assert from "node:assert/strict";
import { test } from "node:test";
import { Answer, type AttentionOptions, HeadlightError } from "../../client/js/src/index.js";
import { Loader } from "../src/data/loader.js";
import { mapOf } from "../src/data/maps.js";
import { toHalf } from "../src/data/packed.js";
import type { Subject } from "../src/data/requests.js";
import type { Source } from "../src/data/source.js";
import { questionKey } from "../src/data/why.js";

const model = { name: "m", layers: 1, heads: 1, max_length: 512 } as Subject["model"];
const subject: Subject = {
  model,
  text: "a",
  pair: null,
  prompt: null,
  weights: "probability",
  level: "token",
  special: "keep",
  ablated: [],
};

/** A source whose answers are maps of one head and two tokens; `failures` come first. */
function stand(failures: Error[] = []): { source: Source; asked: AttentionOptions[] } {
  const asked: AttentionOptions[] = [];
  const layer: Source["layer"] = async (_, options) => {
    asked.push(options);
    await new Promise((resolve) => setTimeout(resolve, 5));
    options.signal?.throwIfAborted();
    const failure = failures.shift();
    if (failure !== undefined) throw failure;
    const item = { heads: [0], size: 2, halves: Uint16Array.from([1, 0, 0.5, 0.5], toHalf) };
    return new Answer("m", [item], { input_tokens: 2 }, null, [], null);
  };
  return { source: { layer } as unknown as Source, asked };
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 20));

test("Maps that two views want are asked for once", async () => {
  const { source, asked } = stand();
  const loader = new Loader(source);
  assert.equal(loader.layer(subject, 0), loader.layer({ ...subject }, 0));
  assert.equal(loader.layer(subject, 0).value.state, "loading");
  await pause();
  assert.equal(loader.layer(subject, 0).value.state, "ready");
  assert.equal(asked.length, 1);
  assert.equal(loader.waiting.value, 0);
});

test("What failed is asked for again only after failures are forgotten, and a refused key is told", async () => {
  const { source, asked } = stand([new HeadlightError(401, {})]);
  let refused = 0;
  const loader = new Loader(source, () => {
    refused += 1;
  });
  loader.layer(subject, 0);
  await pause();
  assert.equal(loader.layer(subject, 0).value.state, "failed");
  assert.deepEqual([asked.length, refused], [1, 1]);
  loader.forgetFailures();
  loader.layer(subject, 0);
  await pause();
  assert.equal(loader.layer(subject, 0).value.state, "ready");
});

test("What is cancelled stops, and is neither ready nor failed", async () => {
  const { source, asked } = stand();
  const loader = new Loader(source);
  const loaded = loader.layer(subject, 0);
  await Promise.resolve();
  loader.cancel();
  await pause();
  assert.equal(loaded.value.state, "loading");
  assert.equal(asked[0].signal?.aborted, true);
});

test("An answer that is cancelled leaves the others that are on their way", async () => {
  const asked: AbortSignal[] = [];
  const ask: Source["ask"] = async (_, signal) => {
    asked.push(signal);
    await pause();
    return { usage: { input_tokens: 2 } };
  };
  const loader = new Loader({ ask } as unknown as Source);
  const [gone, kept] = ["word", "token"].map((unit) => ({ path: "/explain", body: { unit } }));
  for (const one of [gone, kept]) loader.answer(one);
  await Promise.resolve();
  loader.cancel(questionKey(gone));
  assert.deepEqual(
    asked.map(({ aborted }) => aborted),
    [true, false],
  );
  await pause();
  await pause();
  assert.equal(loader.answer(kept).value.state, "ready");
});

test("The layers of a long text are kept in half precision, as they came", async () => {
  const { source } = stand();
  const loader = new Loader(source);
  loader.layer(subject, 0);
  await pause();
  const loaded = loader.layer(subject, 0).value;
  assert.equal(loaded.state === "ready" && loaded.value.halves.byteLength, 2 * 2 ** 2);
  assert.deepEqual(loaded.state === "ready" && [...mapOf(loaded.value, 0)], [1, 0, 0.5, 0.5]);
});
