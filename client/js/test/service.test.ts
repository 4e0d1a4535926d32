/** What the client makes of the service's own answers, beside what `fetch` shows of them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Headlight, type Tensor } from "headlight-client";

const url = process.env.SERVICE_URL!;
const client = new Headlight(url);
const TEXTS = ["The man went to the store.", "Embeddings ünïcode 漢字 😀"];

async function shown(path: string, body: object): Promise<any> {
  const headers = { "Content-Type": "application/json" };
  return (await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

function assertNear(tensor: Tensor | null, expected: any[], error: number): void {
  const flat: number[] = expected.flat(Infinity);
  assert.ok(tensor);
  assert.equal(tensor.data.length, flat.length);
  flat.forEach((number, i) => assert.ok(Math.abs(tensor.data[i] - number) <= error, `${i}: ${tensor.data[i]}`));
}

test("files, streams and JSON have the same items", async () => {
  for (const options of [
    { top_k: 2, heads: [3] },
    { thumbnail: 4, layers: [2, 0] },
    { level: "word", special_tokens: "drop", renormalize: true, aggregate: "max" },
    { aggregate: "rollout", queries: [0, -1] },
    { weights: "value_norm", layers: [5, 0] },
    { edges: [[[1, 2], [-1, 0]], [[0, 1]]], aggregate: "max" },
    { summary: true, aggregate: "mean", outputs: ["sentence", "tokens"], dimensions: 7 },
    { summary: true, maps: false, layers: [0, 5] },
    { maps: false, outputs: ["query", "key", "output_norm"], layers: [1, 0], heads: [3], queries: [2, 1, 2] },
  ] as const) {
    const expected = await shown("/attention", { inputs: TEXTS, decimals: 9, ...options });
    for (const dtype of ["float32", "float16", "uint8"] as const) {
      if (dtype === "uint8" && "maps" in options) continue; // it applies to maps only
      const answer = await client.attention(TEXTS, { ...options, dtype });
      const streamed = [];
      for await (const item of client.streamAttention(TEXTS, { ...options, decimals: 9 })) streamed.push(item);
      streamed.sort((a, b) => a.index - b.index);
      for (const [items, error] of [[[...answer], answer.maxError! + 1e-6], [streamed, 1e-6]] as const) {
        items.forEach((item, i) => {
          const plain = expected.data[i];
          for (const name of ["index", "tokens", "token_ids", "offsets", "word_ids", "special", "words"] as const) {
            assert.deepEqual(item[name], plain[name] ?? null);
          }
          assert.deepEqual(item.axes, expected.axes);
          assert.equal(item.score_scale, plain.score_scale ?? null);
          for (const name of [
            ...(["attention", "top_weights", "residual", "thumbnails", "token_embeddings"] as const),
            ...(["query_vectors", "key_vectors", "output_norms"] as const),
          ]) {
            assert.equal(item[name] === null, plain[name] === undefined, name);
            if (plain[name] !== undefined) assertNear(item[name], plain[name], error);
          }
          assert.deepEqual(item.top_keys && [...item.top_keys.data], plain.top_keys?.flat(Infinity) ?? null);
          assert.deepEqual(Object.keys(item.summary ?? {}), Object.keys(plain.summary ?? {}));
          for (const name in plain.summary) assertNear(item.summary![name], plain.summary[name], 1e-6);
        });
      }
    }
  }
});

test("edges stay with their texts where a call takes several requests", async () => {
  const texts = Array.from({ length: 300 }, (_, i) => `text number ${i}`);
  const edges = texts.map((_, i) => Array.from({ length: i % 3 }, () => [i % 4, 1] as const));
  const answer = await client.attention(texts, { edges, layers: [0] });
  assert.ok(answer.requestIds.length > 1);
  answer.items.forEach((item, i) => {
    assert.deepEqual(item.edges, edges[i]);
    assert.deepEqual(item.attention?.shape, [1, 12, edges[i].length]);
  });
  const alone = await shown("/attention", { inputs: texts[299], edges: edges[299], layers: [0], decimals: 9 });
  assertNear(answer.items[299].attention, alone.data[0].attention, 1e-6);
  const wrong = client.attention(texts, { edges: [...edges.slice(0, -1), [[0, 99]]], layers: [0] });
  await assert.rejects(wrong, /^HeadlightError: edges\.299\.0\.1 is 99 and inputs\.299 /);
  await assert.rejects(client.attention(texts, { edges: [[[0, 1]]] }), /edges has 1 items/);
  await assert.rejects(client.attention(texts, { edges: texts.map(() => [0, 1] as const) }), /a list of edges for each/);
});

test("columns that are not named are null, in files and in streams", async () => {
  for (const columns of [[], ["special", "tokens"]] as const) {
    const answers = [await client.encode(TEXTS, { columns }), await client.attention(TEXTS, { columns, heads: [0] })];
    const streamed = [];
    for await (const item of client.streamEncode(TEXTS, { columns })) streamed.push(item);
    for await (const item of client.streamAttention(TEXTS, { columns })) streamed.push(item);
    for (const item of [...answers.flatMap((answer) => [...answer]), ...streamed]) {
      const [plain] = await client.tokenize(TEXTS[item.index]!);
      for (const name of ["tokens", "token_ids", "offsets", "word_ids", "segment_ids", "special"] as const) {
        assert.deepEqual(item[name], (columns as readonly string[]).includes(name) ? plain[name] : null);
      }
      assert.equal(item.original_length, plain.tokens.length);
    }
  }
  const [whole] = await client.encode(TEXTS);
  assert.ok(whole.tokens.length); // which TypeScript takes for an error if it could be null
});

test("every precision and kind of chunk is read, from files and from streams", async () => {
  for (const precision of ["float32", "int8", "uint8", "binary", "ubinary"] as const) {
    for (const chunks of ["sentences", { tokens: 3, overlap: 1 }, [[0, 2], [3, 9]]] as const) {
      const options = { precision, chunks, outputs: ["sentence"] } as const;
      const text = "It rained. The match was off.";
      const expected = (await shown("/encode", { inputs: text, ...options })).data[0];
      const [item] = await client.encode(text, options);
      const streamed = await client.streamEncode(text, options).next();
      for (const one of [item, streamed.value!]) {
        assert.deepEqual([...one.embedding!], [...expected.embedding].map(Math.fround));
        const numbers = expected.chunks.embeddings.flat().map(Math.fround);
        assert.deepEqual([...one.chunks!.embeddings.data], numbers);
        assert.deepEqual(one.chunks!.offsets, expected.chunks.offsets);
        assert.deepEqual(one.chunks!.token_spans, expected.chunks.token_spans);
      }
    }
  }
});

test("many texts come back in their order, equal to those that are sent alone", async () => {
  const texts = Array.from({ length: 700 }, (_, i) => `Text number ${i}.`);
  const answer = await client.encode(texts);
  assert.equal(answer.length, 700);
  assert.ok(answer.requestIds.length > 2);
  for (const i of [0, 255, 256, 699]) {
    const [alone] = await client.encode(texts[i]);
    assert.equal(answer.items[i].index, i);
    assert.deepEqual(answer.items[i].tokens, alone.tokens);
    alone.embedding!.forEach((x, k) => assert.ok(Math.abs(x - answer.embeddings.at(i, k)) <= 2e-6));
  }
});

test("the best of more texts than a request may have are the best of all", async () => {
  const texts = Array.from({ length: 600 }, (_, i) => (i === 577 ? "A man is eating." : `Stone number ${i}.`));
  const answer = await client.rerank("Who is eating?", texts, { top_n: 3, return_texts: true });
  assert.equal(answer.method, "bi-encoder");
  assert.deepEqual([answer.length, answer.at(0)!.index, answer.at(0)!.text], [3, 577, texts[577]]);
  assert.ok(answer.items[1].score >= answer.items[2].score);
});

test("more ids than a request may have are decoded, of lists and of typed arrays", async () => {
  const lists = Array.from({ length: 400 }, (_, i) => Int32Array.from({ length: 200 }, () => 2000 + i));
  const answer = await client.decode(lists);
  assert.equal(answer.length, 400);
  assert.ok(answer.requestIds.length > 2);
  assert.equal(answer.at(399), (await client.decode([...lists[399]])).at(0));
});

test("the times of a model are in its info", async () => {
  const { models, limits } = await client.info();
  assert.equal(models[0].request_timeout_s, limits.request_timeout_s);
  assert.ok(models[0].longest_text_s! > 0);
});

test("pairs are sent as pairs", async () => {
  const [item] = await client.tokenize([["Who?", "Ann."]]);
  assert.deepEqual(item.segment_ids, [0, 0, 0, 0, 1, 1, 1]);
});

test("what the service refuses says which field, and which are known", async () => {
  await assert.rejects(client.encode("a", { pooling: "average" as any }), { status: 422, field: "pooling" });
  await assert.rejects(client.encode("a", { model: "other" }), { status: 404, type: "urn:headlight:model-not-found" });
  await assert.rejects(client.predict("a"), { status: 422, type: "urn:headlight:unsupported" });
  assert.equal(await client.isReady(), true);
});
