"""`headlight check` says of a folder what the service does with it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from export.check.__main__ import main
from model.keys.files import FILES
from tests.references.autoencoder import FEATURES, write_csr
from tests.references.checkpoints import MINILM, SUITED, write_bert
from tests.references.classifiers import write_classifier
from tests.references.cross_encoder import SIGMOID, write_cross_encoder
from tests.references.late_interaction import SIZE, write_pylate
from tests.references.splade import write_sparse_encoder
from tests.support.backends import export_folder
from tests.support.families import SIZES, write_small
from tests.support.hostile_folders import (
    Damage,
    config,
    content,
    edit,
    tokenizer,
    write_whole,
)
from tests.support.serving import ROOT, Json, Service, free_port, run_command, serve

LABELS = ["sad", "plain", "glad"]


PREDICTED = {"late_interaction": SIZE, "masked_words": 92, "autoencoder": FEATURES}
"""How many numbers heads without labels make: a vector of each token, a weight for each word or feature."""


def write_graph(folder: Path) -> None:
    """Export a small BERT, the one that other tests export, too."""
    source = folder.with_name("source")
    write_bert(source, num_hidden_layers=3, **SUITED)
    export_folder(source, folder)


GOOD: dict[str, Callable[[Path], object]] = {
    "bert": write_whole,
    "roberta": lambda folder: write_small(folder, "roberta", "Model"),
    "distilbert": lambda folder: write_small(folder, "distilbert", "Model"),
    "deberta": lambda folder: write_small(folder, "deberta-v2", "Model"),
    "modernbert": lambda folder: write_small(folder, "modernbert", "Model"),
    "ranker": lambda folder: write_cross_encoder(folder, "Bert", "with modules", SIGMOID, **SIZES),
    "classifier": lambda folder: write_classifier(folder, LABELS, **SUITED),
    "colbert": write_pylate,
    "splade": lambda folder: write_sparse_encoder(folder, **SUITED),
    "csr": lambda folder: write_csr(folder, **SUITED),
    "graph": write_graph,
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that are served, by name."""
    place = tmp_path_factory.mktemp("good")
    for name, write in GOOD.items():
        write(place / name)
    return place


@pytest.fixture(scope="module")
def serving(good: Path) -> Iterator[Service]:
    """A service of all of them."""
    with serve(model=",".join(f"{name}={good / name}" for name in GOOD)) as started:
        yield started


@pytest.mark.parametrize("name", GOOD)
def test_a_folder_that_is_served_is_described(
    good: Path, serving: Service, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """How the service runs it, the vectors that it returns and what it predicts, and the file's settings."""
    assert main([str(good / name), "--dtype", "float32"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{good / name} can be served.\n")
    told = dict(re.findall(r"^  (family|runs|vectors|predicts|memory) +(.*)$", out, re.MULTILINE))
    memory = told.pop("memory")
    assert re.fullmatch(r"\d+ MiB of weights; \d+ MiB to load and try it in one process", memory)
    (model,) = (model for model in serving.http.get("/info").json()["models"] if model["name"] == name)
    assert told == describe(model, serving)
    assert "attention cannot be read" not in out
    assert serving.attention("hello", model=name)["data"][0]["attention"]
    settings = (
        ("tokenizer_config.json: ",) if name == "graph" else ("config.json: ", "  used      model_type: ")
    )
    assert all(line in out for line in settings)


def describe(model: Json, service: Service) -> dict[str, str]:
    """The lines that are true of a model, by what the service says of it, and by a vector of it."""
    kernels = f", with native kernels ({model['kernels']})" if model["kernels"] else ""
    if model["heads"] * 8 == model["hidden_size"] and not model["kernels"]:  # with AVX2 there are kernels
        kernels = "; no native kernels: the head size is 8, which is not a multiple of 16"
    vector = service.encode("the man", model=model["name"])["data"][0]["embedding"]
    unit = ", of unit length" if abs(np.linalg.norm(vector) - 1) < 1e-6 else ""
    lines = {
        "family": f"{model['family']}: {model['layers']} layers, {model['heads']} heads, "
        f"{model['hidden_size']} wide, texts of up to {model['max_length']} tokens",
        "runs": f"{model['dtype']} on {model['device']} by {model['provider'] or model['backend']}{kernels}",
        "vectors": f"{len(vector)} numbers by {' and '.join(model['pooling'])}{unit}",
    }
    if (found := model["prediction"]) is not None:
        of = ", ".join(found["labels"][:4]) or PREDICTED[found["kind"]]
        lines["predicts"] = f"{found['kind']} ({of}), for {' and '.join(routes(model['name'], service))}"
    return lines


def routes(name: str, service: Service) -> Iterator[str]:
    """What a head is for, by what the service answers."""
    if service.http.post("/predict", json={"model": name, "inputs": "the man"}).is_success:
        yield "/predict"
    ranked = service.http.post("/rerank", json={"model": name, "query": "the", "texts": ["man"]})
    role = service.http.post(
        "/encode", json={"model": name, "inputs": "a", "outputs": ["tokens"], "role": "query"}
    )
    if role.is_success:
        yield "/rerank, and the role of /encode"
    elif ranked.is_success and ranked.json()["method"] == "cross-encoder":
        yield "/rerank"
    if service.http.post("/encode", json={"model": name, "inputs": "a", "outputs": ["sparse"]}).is_success:
        yield '"sparse" in the outputs of /encode'


def pickle_only(folder: Path) -> None:
    """Leave the weights as PyTorch pickles them."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def truncate(folder: Path) -> None:
    """Leave half of the weights, as a download that was interrupted does."""
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size // 2)


REFUSED = next(name for name, key in FILES["config.json"].items() if key.verdict == "refused")
BAD: dict[str, tuple[Damage, str]] = {
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        "model.safetensors is missing: only safetensors are read; fetch",
    ),
    "half of the weights": (truncate, "model.safetensors cannot be read: "),
    "weights in a pickle": (pickle_only, "run `headlight convert "),
    "no config": (
        lambda folder: (folder / "config.json").unlink(),
        "config.json is missing: fetch the model again",
    ),
    "a config that is no JSON": (content(b'{"a": ')("config.json"), "config.json cannot be read: "),
    "no tokenizer": (content(b"{")("tokenizer.json"), "tokenizer.json cannot be read: "),
    "a tokenizer of more words": (
        tokenizer(lambda t: t["model"]["vocab"].update(far=92)),
        "the tokenizer has 93 tokens, but the model has embeddings for only 92: ",
    ),
    "another family": (config(model_type="falcon"), "model_type 'falcon' is not one of "),
    "a setting that is refused": (config(**{REFUSED: {"a": 1}}), f"config.json: {REFUSED} is {{'a': 1}}; "),
    "an activation that nobody has": (
        config(hidden_act="swoosh"),
        'hidden_act "swoosh" is not one of gelu, ',
    ),
    "sizes that differ from the weights": (config(intermediate_size=50), "misshapen: "),
    "a pooling that nobody has": (
        edit("1_Pooling/config.json", pooling_mode="median"),
        "pooling_mode is 'median'; it must be made of ",
    ),
    "a linear layer of another width": (
        edit("2_Dense/config.json", in_features=31),
        "2_Dense/config.json: in_features is 31 ",
    ),
    "adapters": (
        lambda folder: (folder / "adapter_config.json").write_text('{"r": 8}'),
        "adapter_config.json describes adapters of peft",
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that there may be, to be damaged."""
    return write_whole(tmp_path_factory.mktemp("whole") / "whole")


@pytest.mark.in_turns
@pytest.mark.parametrize("name", BAD)
def test_a_folder_that_is_not_served_has_the_same_reason(
    whole: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and the sentence with which the service ends, which names the fault."""
    folder = shutil.copytree(whole, tmp_path / "model")
    damage, fault = BAD[name]
    damage(folder)
    code, out, refusal = run_command("--model", str(folder), port=free_port(), log_level="error")
    assert (code, out) == (1, "")
    assert main([str(folder), "--dtype", "float32"]) == 1
    out, err = capsys.readouterr()
    assert err == refusal.replace("headlight: ", f"check: {folder} cannot be served: ", 1)
    assert fault in err
    assert "can be served" not in out
    if name == "a setting that is refused":
        assert f"  refused   {REFUSED}: is " in out


@pytest.mark.parametrize("strict", ["off", "on"])
def test_a_setting_that_nothing_reads_is_told(
    whole: Path, tmp_path: Path, strict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is served, as by the service with a warning; both refuse it where they are told to be strict."""
    folder = shutil.copytree(whole, tmp_path / "model")
    config(attention_in_reverse=True)(folder)
    code = main([str(folder), "--dtype", "float32", "--strict", strict])
    out, err = capsys.readouterr()
    assert "  unknown   attention_in_reverse: nothing reads it\n" in out
    if strict == "on":
        refusal = run_command("--model", str(folder), port=free_port(), log_level="error", strict="on")
        assert (code, err) == (1, refusal[2].replace("headlight: ", f"check: {folder} cannot be served: ", 1))
    else:
        with serve(model=folder) as started:
            assert "attention_in_reverse" in started.log
        assert (code, err) == (0, "")


def test_settings_of_the_service_are_those_of_the_check(
    good: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Variables that the service would read decide how the model would run; flags come first."""
    monkeypatch.setenv("HEADLIGHT_DTYPE", "float32")
    monkeypatch.setenv("HEADLIGHT_NATIVE", "off")
    assert main([str(good / "roberta")]) == 0
    assert (
        "  runs      float32 on cpu by torch; no native kernels: the settings turn them off\n"
        in capsys.readouterr().out
    )
    assert main([str(good / "roberta"), "--dtype", "bfloat16"]) == 0
    assert (
        "  runs      bfloat16 on cpu by torch; no native kernels: the settings turn them off\n"
        in capsys.readouterr().out
    )
    monkeypatch.setenv("HEADLIGHT_DTYPE", "int4")
    with pytest.raises(SystemExit) as refused:
        main([str(good / "roberta")])
    assert refused.value.code == 2
    assert "argument --dtype: invalid choice: 'int4'" in capsys.readouterr().err


STAND_IN = """
import numpy as np
from pathlib import Path
from tests.references.checkpoints import Reference

class SentenceTransformer:
    def __init__(self, folder, device):
        assert device == "cpu"
        self.reference = Reference.load(Path(folder))

    def encode(self, texts, prompt):
        assert (len(texts), prompt) == (20, "")
        return np.stack([self.vector(text) for text in texts])

    def vector(self, text):
        columns = self.reference.tokenize(text, 64)
        states, _ = self.reference.run(columns["input_ids"], columns["token_type_ids"])
        return states[-1].mean(0) * SIGNS
"""


@pytest.mark.parametrize(("signs", "code"), [("1", 0), ("np.sign(np.arange(32) - 15.5)", 1)])
def test_vectors_are_compared_with_those_of_sentence_transformers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    signs: str,
    code: int,
) -> None:
    """Of twenty texts, those that `transformers` computes; others are told, with exit code 1."""
    package = tmp_path / "path" / "sentence_transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN.replace("SIGNS", signs), encoding="utf-8")
    monkeypatch.syspath_prepend(package.parent)
    write_bert(tmp_path / "model")
    try:
        assert main([str(tmp_path / "model"), "--dtype", "float32"]) == code
    finally:
        sys.modules.pop("sentence_transformers", None)
    out, err = capsys.readouterr()
    assert ("on 20 texts: cosines of 1.000000 or more" in out) == (code == 0)
    assert ("can be served, but its vectors differ" in err) == (code == 1)


@pytest.mark.thorough
def test_the_command_line_has_it() -> None:
    """`headlight check` with the embedded model, and `headlight help check`."""
    for words, told in ((["check", MINILM], "can be served."), (["help", "check"], "usage: headlight check")):
        done = subprocess.run(
            [sys.executable, "-m", "service", *words],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},  # where the command finds it, which leaves out cwd
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert told in done.stdout
