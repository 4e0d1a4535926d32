/** A server that answers what a test tells it to. */

import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export interface Received {
  path: string;
  headers: IncomingHttpHeaders;
  body: any;
  at: number;
}

export interface StandIn {
  url: string;
  received: Received[];
}

export type Reply = (response: ServerResponse, received: Received) => unknown;

/** Answer with `replies` in their order, the last one for ever, until the test ends. */
export async function standIn(t: TestContext, ...replies: Reply[]): Promise<StandIn> {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    const one = { path: request.url!, headers: request.headers, body: body && JSON.parse(body), at: Date.now() };
    received.push(one);
    await (replies.length > 1 ? replies.shift()! : replies[0])(response, one);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received };
}

export function problem(status: number, members: object = {}, headers: Record<string, string> = {}): Reply {
  const document = { type: "urn:headlight:overloaded", title: "Busy", status, detail: "Wait.", ...members };
  return (response) => {
    response.writeHead(status, { "Content-Type": "application/problem+json", ...headers });
    response.end(JSON.stringify(document));
  };
}

export const reset: Reply = (response) => response.socket!.resetAndDestroy();

/** Each input has one token, and its length as vector; what `/encode` answers as JSON. */
export function lengths(request: Received): object {
  const data = [request.body.inputs].flat().map((text: string, index: number) => ({
    ...{ index, tokens: [text], token_ids: [1], offsets: [[0, 1]], word_ids: [0], segment_ids: [0], special: [false] },
    ...{ truncated: false, original_length: 1, embedding: [text.length, Number(text)] },
  }));
  return { model: "m", data, usage: { input_tokens: data.length } };
}

export const answered: Reply = (response, request) => {
  response.writeHead(200, { "Content-Type": "application/json", "X-Request-ID": `r${request.at}` });
  response.end(JSON.stringify(lengths(request)));
};

/** A safetensors file. */
export function file(header: object, ...data: number[]): Buffer {
  const text = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([size, text, Buffer.from(data)]);
}
