/** What the client asks for, and what it makes of refusals, silence and broken answers. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Headlight, HeadlightConnectionError, HeadlightError, HeadlightTimeout, InputsError } from "headlight-client";

import { answered, file, lengths, problem, reset, standIn, type Reply } from "./standIn.js";

const REPAIR = "half of a character: repair it with toWellFormed().";
const numbered = (count: number) => Array.from({ length: count }, (_, i) => String(i));

test("a request has what is given, the key and the type, and nothing else", async (t) => {
  const server = await standIn(t, answered);
  const client = new Headlight(`${server.url}/`, { apiKey: "k", headers: { "X-Team": "a" } });
  await client.encode("7", { normalize: false, prompt: "", layers: [0, -1], dtype: "float16" });
  const [{ path, headers, body }] = server.received;
  assert.equal(path, "/encode?dtype=float16");
  assert.deepEqual(body, { inputs: "7", normalize: false, prompt: "", layers: [0, -1] });
  assert.equal(headers.authorization, "Bearer k");
  assert.equal(headers["x-team"], "a");
  assert.equal(headers["content-type"], "application/json");
  assert.match(headers.accept!, /^application\/x-safetensors,/);
});

test("a refused request is sent again, never before Retry-After", async (t) => {
  const server = await standIn(t, problem(429, {}, { "Retry-After": "1" }), problem(503), reset, answered);
  const answer = await new Headlight(server.url).encode("7");
  const [first, second, third, fourth] = server.received;
  assert.ok(second.at - first.at >= 1000);
  assert.ok(third && fourth);
  assert.deepEqual(answer.at(0)?.embedding, new Float32Array([1, 7]));
});

test("a refusal that says when uses up no retries, and milliseconds go before seconds", async (t) => {
  const busy = [429, 503, 429, 503, 429, 503, 429, 503].map((status) =>
    problem(status, {}, { "Retry-After": "1", "retry-after-ms": "60.5" }),
  );
  const server = await standIn(t, ...busy, reset, answered);
  const start = performance.now();
  assert.equal((await new Headlight(server.url, { retries: 1 }).encode("7")).length, 1);
  assert.ok(performance.now() - start < 8000);
  assert.equal(server.received.length, 10);
  const times = server.received.slice(0, 9).map(({ at }) => at);
  assert.ok(times.every((at, i) => i === 0 || at - times[i - 1] >= 60));
  const broken = await standIn(t, ...busy, reset);
  await assert.rejects(new Headlight(broken.url, { retries: 1 }).encode("7"), HeadlightConnectionError);
  assert.equal(broken.received.length, 10);
});

test("what is no number of milliseconds is ignored", async (t) => {
  for (const [value, ms] of [
    ...([["250", 250], ["0", 0], ["17.5", 17.5], ["59000.000", 59_000], [`1${"0".repeat(400)}`, Infinity]] as const),
    ...["", "-1", "+1", "soon", "1e3", "1.", ".5", "1_0", "0x1", "NaN", "Infinity"].map((no) => [no, 7000] as const),
  ]) {
    const server = await standIn(t, problem(503, {}, { "retry-after-ms": value, "Retry-After": "7" }));
    await assert.rejects(new Headlight(server.url, { retries: 0 }).encode("7"), { retryAfterMs: ms });
    assert.equal(server.received.length, 1);
  }
});

test("a named time is kept, with little more by chance, as long as there is time for it", async () => {
  const { decide } = await import(new URL("../dist/retry.js", import.meta.url).href);
  const five = { count: 5, ms: 60_000 };
  const busy = (ms: number | null) => new HeadlightError(429, {}, ms);
  for (const ms of [1, 200, 2500, 7000, 40_000]) {
    assert.equal(decide(busy(ms), five, 5, 0, 0), ms);
    const wait = decide(busy(ms), five, 5, 0, 0.999);
    assert.ok(ms < wait && wait < ms + Math.min(250, 0.1 * ms));
    assert.equal(decide(busy(ms), { ...five, count: 0 }, 0, 0, 0), null);
  }
  assert.equal(decide(busy(3000), five, 0, 57_000, 0.9), 3000);
  assert.equal(decide(busy(3000), five, 0, 57_001, 0), null);
  for (const unnamed of [null, 0]) {
    assert.deepEqual([0, 1, 4].map((counted) => decide(busy(unnamed), five, counted, 0, 0)), [50, 100, 800]);
    assert.equal(decide(busy(unnamed), five, 5, 0, 0), null);
  }
});

test("the client gives up after its retries, its time, or at once where trying again cannot help", async (t) => {
  for (const [status, settings, sent] of [
    [429, { retries: 1 }, 2],
    [429, { retries: 0 }, 1],
    [503, { retryForMs: 0 }, 1],
    [422, {}, 1],
    [500, {}, 1],
  ] as const) {
    const server = await standIn(t, problem(status));
    await assert.rejects(new Headlight(server.url, settings).encode("7"), { name: "HeadlightError", status });
    assert.equal(server.received.length, sent);
  }
  const late = await standIn(t, problem(429, {}, { "Retry-After": "61" }));
  await assert.rejects(new Headlight(late.url).encode("7"), { status: 429, retryAfterMs: 61_000 });
  assert.equal(late.received.length, 1);
});

test("an error has the members of the problem document", async (t) => {
  const members = {
    ...{ type: "urn:headlight:input-too-long", detail: "inputs.0 is long.", field: "inputs.0" },
    ...{ limit: 256, actual: 302, request_id: "r1" },
  };
  const server = await standIn(t, problem(422, members));
  const error = await new Headlight(server.url).encode("7").catch((error: unknown) => error);
  assert.ok(error instanceof HeadlightError);
  assert.equal(error.message, "inputs.0 is long. (422 input-too-long, request r1)");
  const { type, field, limit, actual, requestId, rows } = error;
  assert.deepEqual([type, field, limit, actual, requestId, rows], [members.type, "inputs.0", 256, 302, "r1", null]);
  assert.equal(error.document.detail, members.detail);
});

test("the answer of a proxy, which is no problem document, is quoted", async (t) => {
  const server = await standIn(t, (response) => response.writeHead(502).end("<h1>Bad Gateway</h1>"));
  const error = await new Headlight(server.url).encode("7").catch((error: unknown) => error);
  assert.equal(String(error), "HeadlightError: <h1>Bad Gateway</h1> (502 HTTP 502)");
});

test("a date in Retry-After is compared with the service's own clock", async (t) => {
  const dates = { Date: "Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2015 07:28:10 GMT" };
  const server = await standIn(t, problem(503, {}, dates));
  await assert.rejects(new Headlight(server.url, { retries: 0 }).encode("7"), { retryAfterMs: 10_000 });
});

test("silence is a timeout, before the response and within it, and is not tried again", async (t) => {
  const half: Reply = (response) => response.writeHead(200, { "Content-Length": "100" }).write("{");
  for (const reply of [() => {}, half]) {
    const server = await standIn(t, reply);
    const error = await new Headlight(server.url, { timeoutMs: 100 }).encode("7").catch((error: unknown) => error);
    assert.ok(error instanceof HeadlightTimeout);
    assert.match(error.message, /sent nothing for 0\.1 s/);
    assert.equal(server.received.length, 1);
  }
});

test("a response that arrives slowly, but arrives, is no timeout", async (t) => {
  const server = await standIn(t, async (response, request) => {
    const text = JSON.stringify(lengths(request));
    response.writeHead(200, { "Content-Type": "application/json" });
    for (let i = 0; i < text.length; i += 30) {
      response.write(text.slice(i, i + 30));
      await new Promise((resolve) => setTimeout(resolve, 40));
    }
    response.end();
  });
  assert.equal((await new Headlight(server.url, { timeoutMs: 200 }).encode("7")).length, 1);
});

test("a service that is not there is named, with the cause", async () => {
  const error = await new Headlight("http://127.0.0.1:9999", { retries: 0 }).encode("a").catch((e: unknown) => e);
  assert.ok(error instanceof HeadlightConnectionError && error instanceof HeadlightError);
  assert.match(error.message, /:9999\/encode cannot be reached: .*ECONNREFUSED/);
  assert.ok(error.cause instanceof TypeError);
});

test("a signal ends a call in flight, between attempts, among many and in a stream, with its own reason", async (t) => {
  const silent = await standIn(t, () => {});
  const busy = await standIn(t, problem(503, {}, { "Retry-After": "5" }));
  const half = await standIn(t, (response) => {
    response.writeHead(200, { "Content-Type": "application/x-ndjson" }).write("\n");
  });
  const many = numbered(600);
  const stream = async (client: Headlight, signal: AbortSignal) => {
    for await (const _ of client.streamEncode("7", { signal })) assert.fail();
  };
  for (const call of [
    (signal: AbortSignal) => new Headlight(silent.url).encode("7", { signal }),
    (signal: AbortSignal) => new Headlight(silent.url).encode(many, { signal }),
    (signal: AbortSignal) => new Headlight(busy.url).encode("7", { signal }),
    (signal: AbortSignal) => stream(new Headlight(half.url), signal),
  ]) {
    const controller = new AbortController();
    const reason = new Error("enough");
    setTimeout(() => controller.abort(reason), 100);
    await assert.rejects(call(controller.signal), (error) => error === reason);
  }
  await assert.rejects(new Headlight(silent.url).encode("7", { signal: AbortSignal.timeout(50) }), {
    name: "TimeoutError",
  });
});

test("many inputs are split by the limits of the service, and come back in their order", async (t) => {
  const info = { version: "1", models: [{ name: "m", max_queue_tokens: 1e6 }], limits: { max_inputs: 100 } };
  let most = 0;
  let now = 0;
  const server = await standIn(t, async (response, request) => {
    if (request.path === "/info") return response.end(JSON.stringify(info));
    most = Math.max(most, ++now);
    await new Promise((resolve) => setTimeout(resolve, request.body.inputs[0] === "0" ? 80 : 20));
    now -= 1;
    return answered(response, request);
  });
  const answer = await new Headlight(server.url, { concurrency: 3 }).encode(numbered(1050));
  const found = answer.items.map(({ index, embedding }) => [index, embedding![1]]);
  assert.deepEqual(found, found.map((_, i) => [i, i]));
  assert.deepEqual(answer.embeddings.shape, [1050, 2]);
  assert.equal(answer.embeddings.at(1049, 1), 1049);
  assert.equal(answer.usage.input_tokens, 1050);
  assert.equal(answer.requestIds.length, 11);
  assert.equal(most, 3);
});

test("what is refused as too large is split further, and one input that is too large is an error", async (t) => {
  const server = await standIn(t, (response, request) => {
    if (request.path === "/info") return problem(404)(response, request);
    const { length } = request.body.inputs;
    if (length <= 10) return answered(response, request);
    return problem(413, { type: "urn:headlight:too-many-inputs", limit: 10, actual: length })(response, request);
  });
  const answer = await new Headlight(server.url).encode(numbered(25));
  assert.deepEqual(answer.items.map(({ embedding }) => embedding![1]), Array.from({ length: 25 }, (_, i) => i));
  const large = await standIn(t, problem(413));
  await assert.rejects(new Headlight(large.url).encode(["7"]), { status: 413 });
});

test("what takes longer than its deadline is split further, and one input that does is an error", async (t) => {
  const members = (length: number) => ({
    ...{ type: "urn:headlight:deadline-too-short", field: "X-Request-Timeout-Ms" },
    ...{ limit: 0.5, actual: 0.05 * length, tokens: 3 * length },
  });
  const server = await standIn(t, (response, request) => {
    if (request.path === "/info") return problem(404)(response, request);
    const { length } = request.body.inputs;
    return (length <= 10 ? answered : problem(422, members(length)))(response, request);
  });
  const client = new Headlight(server.url);
  const answer = await client.encode(numbered(25));
  assert.deepEqual(answer.items.map(({ embedding }) => embedding![1]), Array.from({ length: 25 }, (_, i) => i));
  let count = 0;
  for await (const { index } of client.streamEncode(numbered(25))) count += Number(index >= 0);
  assert.equal(count, 25);
  const slow = await standIn(t, problem(422, members(11)));
  await assert.rejects(new Headlight(slow.url).encode(["7"]), { status: 422, limit: 0.5, rows: null });
  assert.equal(slow.received.length, 1);
});

test("the first failure ends a call, and names the inputs as the call numbers them", async (t) => {
  const server = await standIn(t, async (response, request) => {
    if (request.path === "/info") return problem(404)(response, request);
    if (request.body.inputs[0] !== "256") return; // never answered: these are cancelled
    return problem(422, { detail: "inputs.3 is bad.", field: "inputs.3" })(response, request);
  });
  const error = await new Headlight(server.url).encode(numbered(900)).catch((e: unknown) => e);
  assert.ok(error instanceof HeadlightError);
  assert.equal(error.field, "inputs.259");
  assert.deepEqual(error.rows, { start: 256, stop: 512 });
  assert.match(error.message, /^inputs\.259 is bad\. .*\[inputs 256 to 511\]$/);
});

test("a stream yields lines as they come, wherever they are cut, and is not whole without its last", async (t) => {
  const [item] = (lengths({ body: { inputs: ["漢\u2028"] } } as any) as any).data;
  const lines = [JSON.stringify(item), JSON.stringify({ ...item, index: 1 })].join("\n");
  const send = (text: string): Reply => async (response) => {
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    for (const byte of Buffer.from(text)) response.write(Buffer.of(byte));
    response.end();
  };
  const whole = await standIn(t, send(`${lines}\n{"usage": {"input_tokens": 2}}\n`));
  const read = [];
  for await (const one of new Headlight(whole.url).streamEncode(["a", "b"])) read.push([one.index, one.tokens[0]]);
  assert.deepEqual(read, [[0, "漢\u2028"], [1, "漢\u2028"]]);
  assert.match(whole.received[0].headers.accept!, /^application\/x-ndjson/);
  for (const [end, message] of [
    ["", /ends without the last line/],
    ['\n{"type": "urn:headlight:inference-failed", "title": "Failed", "status": 500}', /500 inference-failed/],
    ['\n{"index": 2', /cannot be read/],
  ] as const) {
    const server = await standIn(t, send(lines + end));
    const count = { read: 0 };
    await assert.rejects(async () => {
      for await (const _ of new Headlight(server.url).streamEncode(["a", "b"])) count.read++;
    }, { name: "HeadlightError", message });
    assert.equal(count.read, 2);
  }
});

test("leaving a stream ends the request", async (t) => {
  let closed: Promise<unknown> | undefined;
  const server = await standIn(t, (response, request) => {
    closed = new Promise((resolve) => response.on("close", resolve));
    const [item] = (lengths(request) as any).data;
    response.writeHead(200, { "Content-Type": "application/x-ndjson" }).write(`${JSON.stringify(item)}\n`);
  });
  for await (const item of new Headlight(server.url).streamEncode("7")) {
    assert.equal(item.index, 0);
    break;
  }
  await closed;
});

test("every half-precision number is read as it is", async (t) => {
  const bits = [0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3555, 0x3c00, 0xc000, 0x7bff, 0x7c00, 0xfc00, 0x7e00];
  const values = [0, -0, 2 ** -24, 1023 * 2 ** -24, 2 ** -14, 0.333251953125, 1, -2, 65504, Infinity, -Infinity, NaN];
  const meta = { headlight: '{"model":"m","function":"dot","usage":{"input_tokens":1}}' };
  const tensor = { dtype: "F16", shape: [12], data_offsets: [0, 24] };
  const content = file({ __metadata__: meta, similarities: tensor }, ...bits.flatMap((one) => [one & 255, one >> 8]));
  const server = await standIn(t, (response) => {
    response.writeHead(200, { "Content-Type": "application/x-safetensors" }).end(content);
  });
  const texts = numbered(12);
  const { similarities } = await new Headlight(server.url).similarity(texts, { source: "a" });
  assert.deepEqual([...similarities.data], values);
});

test("halves that stay as bits are read from odd bytes too", async () => {
  const { readSafetensors } = await import(new URL("../dist/safetensors.js", import.meta.url).href);
  const tensor = { dtype: "F16", shape: [2], data_offsets: [0, 4] };
  const content = file({ a: tensor }, 0x00, 0x3c, 0x00, 0xc0);
  for (const odd of [0, 1]) {
    const room = new Uint8Array(content.length + odd);
    room.set(content, odd);
    const { tensors } = readSafetensors(room.subarray(odd), true);
    assert.deepEqual([...tensors.get("a").data], [0x3c00, 0xc000]);
  }
});

test("a file that is not whole is an error, not a wrong number", async (t) => {
  const meta = { headlight: '{"model":"m","function":"dot","usage":{"input_tokens":1}}' };
  const good = { dtype: "F32", shape: [1], data_offsets: [0, 4] };
  const headers = { "Content-Type": "application/x-safetensors" };
  for (const content of [
    Buffer.alloc(0),
    Buffer.from([255, 0, 0, 0, 0, 0, 0, 0, 123]),
    file({ __metadata__: meta, similarities: good }, 0, 0, 0),
    file({ __metadata__: meta, similarities: { ...good, shape: [2] } }, 0, 0, 0, 0),
    file({ __metadata__: meta, similarities: { ...good, dtype: "Q9" } }, 0, 0, 0, 0),
    file({ __metadata__: meta, similarities: { dtype: "F32", shape: [2], data_offsets: [0, 8] } }, ...Array(8).fill(0)),
    file({ __metadata__: meta }),
  ]) {
    const server = await standIn(t, (response) => response.writeHead(200, headers).end(content));
    await assert.rejects(new Headlight(server.url).similarity(["a"], { source: "b" }), {
      name: "HeadlightError",
      status: 200,
      message: /cannot be read/,
    });
  }
});

test("inputs that cannot be sent are named before anything is sent", async (t) => {
  const server = await standIn(t, answered);
  const client = new Headlight(server.url);
  for (const [inputs, field, message] of [
    [[], "inputs", "inputs is empty: pass at least one text."],
    [["a", null], "inputs.1", 'inputs[1] is null, not a string: drop it or use "".'],
    [["a", ["b", "c"]], "inputs.1", "inputs[1] is a pair, and a text is expected: pass only texts or only pairs."],
    [[["a", "b"], ["c"]], "inputs.1", 'inputs[1] is ["c"] (object), not a string: drop it or use "".'],
    [7, "inputs", "inputs is 7 (number), which cannot be sent: pass a string or a list."],
    [["😀", "\ud83d"], "inputs.1", `inputs[1] has a lone surrogate, ${REPAIR}`],
  ] as [any, string, string][]) {
    await assert.rejects(client.encode(inputs), (error) => {
      assert.ok(error instanceof InputsError);
      assert.deepEqual([error.field, error.message], [field, message]);
      return true;
    });
  }
  await assert.rejects(client.rerank("q", ["a", ["b", "c"]] as any), { field: "texts.1" });
  assert.equal(server.received.length, 0);
});

test("settings that cannot work are refused", () => {
  assert.throws(() => new Headlight("localhost:8000"), /include the scheme/);
  for (const settings of [{ concurrency: 0 }, { retries: -1 }, { timeoutMs: NaN }, { retryForMs: -1 }]) {
    assert.throws(() => new Headlight(undefined, settings), RangeError);
  }
});

test("a client waits for a service that starts, and no longer than it is told", async (t) => {
  const server = await standIn(t, problem(503), reset, (response) => response.end("{}"));
  await new Headlight(server.url).waitUntilReady();
  assert.deepEqual(server.received.map(({ path }) => path), ["/readyz", "/readyz", "/readyz"]);
  const loading = await standIn(t, problem(503));
  assert.equal(await new Headlight(loading.url).isReady(), false);
  await assert.rejects(new Headlight(loading.url).waitUntilReady({ timeoutMs: 250 }), {
    name: "HeadlightTimeout",
    message: /not ready within 0\.25 s\. Last error: Wait\./,
  });
  const other = await standIn(t, problem(404));
  await assert.rejects(new Headlight(other.url).waitUntilReady(), { status: 404 });
});
