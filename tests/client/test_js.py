"""The client for JavaScript: its own tests, what is packed, and the numbers of the Python client."""

import base64
import json
import os
import re
import shutil
import subprocess
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headlight_client import Headlight
from model import choices, contract
from model.tokenization import tokenizer
from service.protocols.native import decode, explain, predict, rerank, schemas, similarity, tokenize
from service.tasks import precision
from service.tasks.explanations.plan import Method, Replacement
from service.tasks.explanations.units import Unit
from tests.references.checkpoints import SUITED
from tests.references.families import write_model
from tests.references.late_interaction import write_pylate
from tests.references.splade import write_sparse_encoder
from tests.support.families import SIZES
from tests.support.serving import ROOT, Service, serve

FOLDER = ROOT / "client" / "js"
NPM = shutil.which("npm")
TEXTS = ["The man went to the store.", "Embeddings ünïcode 漢字 😀"]

pytestmark = [
    pytest.mark.registry,
    pytest.mark.thorough,
    pytest.mark.skipif(NPM is None, reason="npm, which comes with Node.js, is not installed"),
]


def run(*command: str, **environment: str) -> str:
    """Run a command in the folder of the client; its standard output."""
    done = subprocess.run(
        command,
        cwd=FOLDER,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built() -> Path:
    """The client, compiled with exactly the packages that its lock file names."""
    run("npm", "ci", "--prefer-offline")
    run("npm", "run", "build")
    return FOLDER


def test_its_own_tests_pass(built: Path, service: Service) -> None:
    """Node's test runner runs the compiled client against the service, and the examples of its README."""
    out = run("npm", "test", SERVICE_URL=service.url)
    counts = dict(re.findall(r"^[#ℹ] (pass|fail|skipped) (\d+)$", out, re.MULTILINE))
    assert (counts["fail"], counts["skipped"]) == ("0", "0")
    assert int(counts["pass"]) >= 40


def test_what_is_packed_is_what_is_used(built: Path) -> None:
    """A package has the compiled modules, their types, README and licence; no sources, tests or settings."""
    (packed,) = json.loads(run("npm", "pack", "--dry-run", "--json", "--ignore-scripts"))
    names = {path.stem for path in (FOLDER / "src").iterdir()}
    modules = {f"dist/{name}.js" for name in names} | {f"types/{name}.d.ts" for name in names}
    assert {one["path"] for one in packed["files"]} == {*modules, "README.md", "LICENSE", "package.json"}


PROGRAM = """
import { Headlight, Tensor } from "headlight-client";
function bytes(_, one) {
  if (one instanceof Tensor) return { shape: one.shape, ...bytes(_, one.data) };
  if (!ArrayBuffer.isView(one)) return one;
  return { type: one.constructor.name, base64: Buffer.from(one.slice().buffer).toString("base64") };
}
const client = new Headlight(process.env.SERVICE_URL);
const answers = [];
for (const [route, inputs, options] of JSON.parse(process.env.CALLS)) {
  const answer = await client[route](...inputs, options);
  answers.push(answer.items ?? answer);
}
console.log(JSON.stringify(answers, bytes));
"""
PAIRS = [("The cat sat. It slept.", "A cat was sitting."), ("a", "b c")]
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("encode", [TEXTS], {"outputs": ["sentence", "tokens"], "layers": [0, -1]}),
    ("encode", [TEXTS], {"precision": "int8", "chunks": {"tokens": 4}}),
    ("encode", [[*TEXTS, "It rained. " * 200]], {"chunks": "sentences", "overlap": 30}),
    ("encode", [TEXTS], {"dtype": "float16"}),
    ("attention", [TEXTS], {"layers": [0, 5], "level": "word"}),
    ("attention", [TEXTS], {"top_k": 3, "summary": True}),
    ("attention", [TEXTS], {"thumbnail": 3, "aggregate": "mean", "dtype": "float16"}),
    ("attention", [[*TEXTS, ""]], {"thumbnail": 5, "special_tokens": "drop"}),
    ("attention", [TEXTS], {"dtype": "uint8", "weights": "value_norm", "aggregate": "max"}),
    ("attention", [TEXTS], {"edges": [[[1, 2]], [[3, 0], [-1, 1]]], "layers": [0, 5]}),
    ("attention", [TEXTS[0]], {"edges": [[1, 2], [0, 0]], "aggregate": "mean"}),
    ("tokenize", [[("Who?", "Ann."), ("a", "b")]], {"special_tokens": "drop"}),
    ("rerank", ["Who is eating?", TEXTS], {"return_texts": True}),
    ("similarity", [TEXTS], {}),
    ("similarity", [TEXTS], {"source": "A man", "function": "euclidean"}),
    ("explain", [PAIRS], {}),
    ("explain", [PAIRS], {"unit": "sentence", "function": "dot"}),
    ("explain", [PAIRS], {"method": "occlusion", "pooling": "cls", "replacement": "remove"}),
    ("explain", [PAIRS], {"method": "heads"}),
    ("explain", [PAIRS], {"method": "gradient", "steps": 2}),
    ("encode", [TEXTS], {"interventions": [{"kind": "heads", "layer": 1, "heads": "all", "scale": 0.5}]}),
    ("decode", [[[101, 7592, 102], [2088]]], {"skip_special_tokens": False}),
]


HEAD_CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("predict", [TEXTS], {"model": "classes", "top_k": 2, "attention": {"layers": [0], "summary": True}}),
    ("predict", [TEXTS], {"model": "tagger"}),
    ("predict", [TEXTS], {"model": "tagger", "aggregation": "simple", "attention": {"aggregate": "rollout"}}),
    ("rerank", ["the man", TEXTS], {"model": "ranker", "attention": {"heads": [0], "top_k": 2}}),
    ("explain", [TEXTS], {"model": "classes", "faithfulness": True}),
    ("explain", [TEXTS], {"model": "tagger", "target": {"token": -2, "label": "LABEL_1"}}),
    ("explain", [PAIRS], {"model": "ranker"}),
    ("explain", [PAIRS], {"model": "colbert", "unit": "token"}),
    ("encode", [TEXTS], {"model": "splade", "outputs": ["sparse"]}),
    ("encode", [TEXTS], {"model": "splade", "outputs": ["sparse"], "top_k": 2, "dtype": "float16"}),
    ("encode", [TEXTS], {"model": "splade", "outputs": ["logit_lens"], "layers": "all", "top_k": 2}),
    ("encode", [TEXTS], {"model": "splade", "outputs": ["logit_lens"], "positions": [0], "dtype": "float16"}),
    ("encode", [TEXTS], {"model": "colbert", "outputs": ["tokens"], "role": "document"}),
]


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of small models that predict."""
    place = tmp_path_factory.mktemp("models")
    for name, task, labels in (("classes", "Sequence", 3), ("tagger", "Token", 3), ("ranker", "Sequence", 1)):
        architecture = f"BertFor{task}Classification"
        write_model(place / name, "Bert", architecture=architecture, num_labels=labels, **SIZES)
    write_sparse_encoder(place / "splade", **SUITED)
    write_pylate(place / "colbert", **SUITED)
    names = ("classes", "tagger", "ranker", "splade", "colbert")
    with serve(model=",".join(f"{name}={place / name}" for name in names), threads=1) as started:
        yield started


def test_its_numbers_are_those_of_the_python_client(built: Path, service: Service) -> None:
    """Every member of every item is equal, arrays in each of their bits, shapes and types."""
    assert_equal_answers(service, CALLS)


def test_what_models_predict_is_read_as_the_python_client_does(built: Path, heads: Service) -> None:
    """Labels, entities, scores of pairs, sparse vectors, words of layers and vectors of tokens, with maps."""
    assert_equal_answers(heads, HEAD_CALLS)


def assert_equal_answers(service: Service, calls: list[tuple[str, list[Any], dict[str, Any]]]) -> None:
    """Make calls with both clients, and compare the items of their answers."""
    program = ("node", "--input-type=module", "--eval", PROGRAM)
    theirs = json.loads(run(*program, SERVICE_URL=service.url, CALLS=json.dumps(calls)))
    with Headlight(service.url) as client:
        for (route, arguments, options), found in zip(calls, theirs, strict=True):
            answer = getattr(client, route)(*arguments, **options)
            if route == "similarity":
                assert_same(found["similarities"], answer.similarities)
                continue
            for one, item in zip(found, answer, strict=True):
                assert_same(one, item)


def assert_same(found: Any, value: Any) -> None:
    """Compare a member of an item with the Python client's: numbers, arrays, or objects of them."""
    if isinstance(found, Mapping) and "base64" in found:
        array = np.frombuffer(
            base64.b64decode(found["base64"]), found["type"].removesuffix("Array").lower()
        ).reshape(found.get("shape", -1))
        assert array.dtype == value.dtype
        assert array.shape == value.shape
        assert array.tobytes() == value.tobytes()
    elif isinstance(found, Mapping):
        members = value if isinstance(value, Mapping) else vars(value)
        assert found.keys() == members.keys()
        for name, one in found.items():
            assert_same(one, members[name])
    elif isinstance(found, list) and found and isinstance(found[0], Mapping):
        for one, member in zip(found, value, strict=True):
            assert_same(one, member)
    else:
        assert found == (value.tolist() if isinstance(value, np.ndarray) else _listed(value))


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


OWN = {"signal"}
FIELDS: dict[str, tuple[Any, set[str], set[str]]] = {
    "EncodeOptions": (schemas.EncodeRequest, {"inputs"}, {"dtype"}),
    "StreamEncodeOptions": (schemas.EncodeRequest, {"inputs"}, set()),
    "AttentionOptions": (schemas.AttentionRequest, {"inputs", "decimals"}, {"dtype"}),
    "StreamAttentionOptions": (schemas.AttentionRequest, {"inputs"}, set()),
    "RoundedMapFields": (schemas.AttentionOptions, set(), set()),
    "PredictOptions": (predict.PredictRequest, {"inputs"}, set()),
    "RerankOptions": (rerank.RerankRequest, {"query", "texts"}, set()),
    "SimilarityOptions": (similarity.SimilarityRequest, {"texts"}, {"dtype"}),
    "TokenizeOptions": (tokenize.TokenizeRequest, {"inputs"}, set()),
    "DecodeOptions": (decode.DecodeRequest, {"token_ids"}, set()),
    "ExplainOptions": (explain.ExplainRequest, {"inputs"}, set()),
}
CHOICES: dict[str, Any] = {
    "Pooling": contract.Pooling,
    "Precision": precision.Precision,
    "Side": tokenizer.Side,
    "Weights": contract.Weights,
    "Aggregate": contract.Aggregate,
    "Statistic": choices.Statistic,
    "SimilarityFunction": contract.Similarity,
    "Method": Method,
    "Unit": Unit,
    "Replacement": Replacement,
    "Aggregation": predict.PredictRequest.model_fields["aggregation"].annotation,
}


def test_the_types_have_every_field_and_choice(built: Path) -> None:
    """What a request may say, an editor completes; what it may not say does not compile."""
    lines = [f'import type {{ {", ".join([*FIELDS, *CHOICES])} }} from "headlight-client";']
    for name, (schema, given, added) in FIELDS.items():
        own = set() if name == "RoundedMapFields" else OWN
        fields = ({*schema.model_fields} - given) | added | own
        record = dict.fromkeys(sorted(fields), 1)
        lines.append(f"export const of{name}: Record<keyof {name}, 1> = {json.dumps(record)};")
    for name, kind in CHOICES.items():
        record = dict.fromkeys(typing.get_args(kind), 1)
        lines.append(f"export const of{name}: Record<{name}, 1> = {json.dumps(record)};")
    program = built / "build" / "fields.ts"
    program.parent.mkdir(exist_ok=True)
    program.write_text("\n".join(lines), encoding="utf-8")
    options = ("--noEmit", "--strict", "--module", "nodenext", "--ignoreConfig")
    run("npx", "--no-install", "tsc", *options, str(program))


def test_no_host_is_in_the_lock_file() -> None:
    """Packages come from the registry that npm is set to, and are checked by their hashes."""
    lock = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert packages
    assert [name for name, one in packages.items() if "resolved" in one or "integrity" not in one] == []
