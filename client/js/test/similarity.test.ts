/** What the client makes of texts to compare that are too many for one request. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Headlight, HeadlightError, InputsError } from "headlight-client";

import { answered, problem, standIn, type Reply } from "./standIn.js";

const url = process.env.SERVICE_URL!;
const TEXTS = ["3", "0", "-1", "2"];

/** A service that compares two texts at most, and encodes as `standIn` does, but for a text that it refuses. */
const narrow =
  (info: object | null): Reply =>
  (response, request) => {
    if (request.path === "/info") return info ? response.end(JSON.stringify(info)) : problem(404)(response, request);
    if (request.path === "/encode") {
      const wrong = request.body.inputs.indexOf("bad");
      if (wrong < 0) return answered(response, request);
      const members = { detail: `inputs.${wrong} is bad.`, field: `inputs.${wrong}` };
      return problem(422, members)(response, request);
    }
    const actual = request.body.texts.length;
    if (actual > 2) {
      return problem(413, { type: "urn:headlight:too-many-inputs", limit: 2, actual })(response, request);
    }
    const similarities = request.body.texts.map(Number);
    response.writeHead(200, { "Content-Type": "application/json", "X-Request-ID": `r${request.body.texts[0]}` });
    return response.end(JSON.stringify({ model: "m", function: "dot", similarities, usage: { input_tokens: actual } }));
  };
const served = (similarity: string) => ({ models: [{ name: "m", similarity }], limits: { max_inputs: 2 } });

test("texts that are too many for one request are compared here, by the function of the call or the model", async (t) => {
  // The vectors are (length of the text, its number): (1, 3), (1, 0), (2, -1), (1, 2).
  const expected = {
    dot: [10, 1, -1, 7, 1, 1, 2, 1, -1, 2, 5, 0, 7, 1, 0, 5],
    manhattan: [0, -3, -5, -1, -3, 0, -2, -2, -5, -2, 0, -4, -1, -2, -4, 0],
    euclidean: [0, 3, 17 ** 0.5, 1, 3, 0, 2 ** 0.5, 2, 17 ** 0.5, 2 ** 0.5, 0, 10 ** 0.5, 1, 2, 10 ** 0.5, 0].map((x) => -x),
    cosine: [1, 0.1 ** 0.5, -1 / 50 ** 0.5, 7 / 50 ** 0.5, 0.1 ** 0.5, 1, 0.8 ** 0.5, 0.2 ** 0.5].concat([
      ...[-1 / 50 ** 0.5, 0.8 ** 0.5, 1, 0, 7 / 50 ** 0.5, 0.2 ** 0.5, 0, 1],
    ]),
  };
  for (const [name, numbers] of Object.entries(expected)) {
    for (const [info, options] of [
      [served(name), {}],
      [served("dot"), { function: name as "dot" }],
      [null, { function: name as "dot" }],
    ] as const) {
      const server = await standIn(t, narrow(info));
      const answer = await new Headlight(server.url).similarity(TEXTS, { prompt: "p", ...options });
      assert.deepEqual(answer.similarities.shape, [4, 4]);
      answer.similarities.data.forEach((x, i) => assert.ok(Math.abs(x - numbers[i]) < 1e-6, `${name} ${i}: ${x}`));
      assert.deepEqual([answer.function, answer.usage.input_tokens, answer.requestIds.length], [name, 4, 2]);
      const encoded = server.received.filter(({ path }) => path === "/encode");
      assert.deepEqual(encoded.map(({ body }) => body.inputs.length), [2, 2]);
      assert.deepEqual(encoded.map(({ body }) => [body.prompt, body.function]), [["p", undefined], ["p", undefined]]);
    }
  }
});

test("a function that nobody names, or that the client does not have, is refused before texts are encoded", async (t) => {
  for (const [info, options, message] of [
    [null, {}, /service does not say in \/info how: pass the model's function, one of cosine, dot/],
    [{ models: [{ name: "m" }] }, {}, /does not say in \/info/],
    [served("dot"), { function: "cosinus" as "cosine" }, /function is cosinus: use cosine, dot, euclidean, manhattan/],
  ] as const) {
    const server = await standIn(t, narrow(info));
    await assert.rejects(new Headlight(server.url).similarity(TEXTS, options), (error) => {
      assert.ok(error instanceof InputsError);
      assert.equal(error.field, "function");
      assert.match(error.message, message);
      return true;
    });
    assert.equal(server.received.filter(({ path }) => path === "/encode").length, 0);
  }
});

test("texts are compared with a source in several requests, in their order", async (t) => {
  const server = await standIn(t, narrow(served("dot")));
  const answer = await new Headlight(server.url).similarity([...TEXTS, "7"], { source: "a" });
  assert.deepEqual([...answer.similarities.data], [3, 0, -1, 2, 7]);
  assert.deepEqual([answer.similarities.shape, answer.usage.input_tokens], [[5], 5]);
  assert.deepEqual(answer.requestIds, ["r3", "r-1", "r7"]);
});

test("errors of texts that are compared here name them as the call does", async (t) => {
  const server = await standIn(t, narrow(served("dot")));
  const error = await new Headlight(server.url).similarity([...TEXTS, "bad"]).catch((e: unknown) => e);
  assert.ok(error instanceof HeadlightError);
  assert.equal(error.field, "texts.4");
  assert.match(error.message, /^texts\.4 is bad\. /);
});

test("a signal ends a comparison, and other work goes on beside it", async (t) => {
  const controller = new AbortController();
  const reason = new Error("enough");
  const reply = narrow({ ...served("dot"), limits: { max_inputs: 500 } });
  let answers = 0;
  const server = await standIn(t, (response, request) => {
    // A while after the last vectors have arrived, of which the comparison takes longer.
    if (request.path === "/encode" && ++answers === 16) setTimeout(() => controller.abort(reason), 30);
    return reply(response, request);
  });
  const many = Array.from({ length: 8000 }, (_, i) => String(i));
  const call = new Headlight(server.url).similarity(many, { signal: controller.signal });
  await assert.rejects(call, (error) => error === reason);
  assert.equal(answers, 16);
});

test("any number of texts is compared as the service compares a few of them", async () => {
  const client = new Headlight(url);
  const texts = Array.from({ length: 300 }, (_, i) => `${"very ".repeat(i % 4)}long sentence number ${i}`);
  const some = [0, 9, 255, 256, 299];
  for (const name of [undefined, "cosine", "dot", "euclidean", "manhattan"] as const) {
    const options = name === undefined ? {} : { function: name };
    const answer = await client.similarity(texts, options);
    assert.deepEqual(answer.similarities.shape, [300, 300]);
    assert.ok(answer.requestIds.length > 1);
    const few = await client.similarity(some.map((i) => texts[i]), options);
    assert.equal(few.requestIds.length, 1);
    assert.equal(answer.function, few.function);
    some.forEach((i, row) =>
      some.forEach((k, column) => {
        const [found, expected] = [answer.similarities.at(i, k), few.similarities.at(row, column)];
        assert.ok(Math.abs(found - expected) <= 5e-6 * Math.max(1, Math.abs(expected)), `${found} ${expected}`);
      }),
    );
  }
  const { similarities } = await client.similarity(texts, { source: texts[7] });
  assert.deepEqual(similarities.shape, [300]);
  assert.ok(Math.abs(similarities.data[7] - 1) <= 5e-6);
});
