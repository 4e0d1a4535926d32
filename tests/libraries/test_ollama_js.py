"""Ollama's own library for JavaScript, which npm installs."""

from tests.references.comparing import distance
from tests.support.libraries import NODE, answers, needs
from tests.support.serving import LONG, Service

pytestmark = needs(NODE + "ollama")

PROGRAM = """
import { Ollama } from "ollama";
const { url, texts, long } = given;
const client = new Ollama({ host: url });
async function tried(call) {
  try { await call(); } catch (error) { return [error.name, error.status_code, error.error]; }
}
const older = [];
for (const prompt of texts) older.push((await client.embeddings({ model: "mini", prompt })).embedding);
const lines = [];
for await (const line of await client.pull({ model: "mini", stream: true })) lines.push(line.status);
const listed = (await client.list()).models[0];
const loaded = (await client.ps()).models[0];
console.log(JSON.stringify({
  embed: (await client.embed({ model: "mini", input: texts })).embeddings,
  cut: (await client.embed({ model: "mini:latest", input: texts, dimensions: 8 })).embeddings,
  older,
  listed: [listed.name, listed.details.parameter_size, new Date(listed.modified_at).getTime() > 0],
  loaded: [loaded.name, new Date(loaded.expires_at).getUTCFullYear()],
  shown: (await client.show({ model: "mini" })).capabilities,
  version: (await client.version()).version,
  lines,
  unknown: await tried(() => client.embed({ model: "other", input: "a" })),
  long: await tried(() => client.embed({ model: "mini", input: long, truncate: false })),
  chat: await tried(() => client.chat({ model: "mini", messages: [{ role: "user", content: "a" }] })),
}));
"""


def test_what_the_library_does(tei: Service) -> None:
    """Vectors are the native ones, models have their fields, and errors their status and sentence."""
    texts = ["A man is eating.", "Someone eats."]
    found = answers(NODE + "ollama", PROGRAM, url=tei.url, texts=texts, long=LONG)
    for name, options in (
        ("embed", {"normalize": True}),
        ("cut", {"normalize": True, "dimensions": 8}),
        ("older", {"normalize": False}),
    ):
        expected = [one["embedding"] for one in tei.encode(texts, **options)["data"]]
        assert distance(found[name], expected) <= 2e-6
    assert found["listed"] == ["mini:latest", "22.6M", True]
    assert found["loaded"] == ["mini:latest", 9000]
    assert found["shown"] == ["embedding"]
    assert found["version"] == tei.http.get("/api/version").json()["version"]
    assert found["lines"] == ["success"]
    assert found["unknown"] == ["ResponseError", 404, "model 'other' not found"]
    assert found["long"] == ["ResponseError", 400, "the input length exceeds the context length"]
    assert found["chat"] == ["ResponseError", 400, '"mini" does not support chat']
