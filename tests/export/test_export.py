"""`python -m export`: the folder that it writes, and what is left when it cannot."""

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import save_file

from export.__main__ import main
from export.contents import add_tokenizer, copy_contents
from export.parity import Quantity
from export.precision import PRECISIONS
from export.writer import OPSET, WEIGHTS
from model.checkpoints.folder import read_folder
from model.checkpoints.layout import Layout, read_layout
from model.errors import CheckpointError
from model.onnx.file import CHANGED, GRAPH, MANIFEST
from model.tokenization.tokenizer import TextTokenizer
from service.setting_values import parse_models
from tests.model.test_heads import take_vocabulary_apart
from tests.references.checkpoints import write_bert

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
SENTENCE = re.compile(r"export: \S.*\.\n", re.DOTALL)
WROTE = ("Finding", "Reading", "Tracing", "Copying", "Comparing")


def write_model(folder: Path, *, transformer: str) -> None:
    """A random model of one layer, with a linear layer after it; `transformer` is the encoder's folder."""
    write_bert(folder / transformer, num_hidden_layers=1)
    names = [(transformer, "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3", "Normalize")]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(names)
    ]
    dense = {"in_features": 32, "out_features": 8, "activation_function": "torch.nn.modules.activation.Tanh"}
    weights = torch.randn(8, 32, generator=torch.Generator().manual_seed(3)) / 4
    (folder / "1_Pooling").mkdir()
    (folder / "2_Dense").mkdir()
    save_file(
        {"linear.weight": weights, "linear.bias": weights[:, 0].clone()}, folder / "2_Dense/model.safetensors"
    )
    for name, content in {
        "modules.json": modules,
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
        "2_Dense/config.json": dense,
        "config_sentence_transformers.json": {"prompts": {"query": "q: "}},
        f"{transformer}/sentence_bert_config.json": {"max_seq_length": 40, "do_lower_case": True},
        "training_data.json": {"private": True},
    }.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "export", *map(str, arguments)]


def export(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Export as it is done by hand, and wait for its end."""
    return subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, check=False, timeout=300, **options
    )


@dataclass(frozen=True)
class Run:
    """An export that was run as it is by hand: from which model, to where, and what it said."""

    model: Path
    folder: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("export")
    model, folder = place / "small", place / "exported"
    write_model(model, transformer="0_Transformer")
    return Run(model, folder, export(model, folder, env={**os.environ, "PYTHONHASHSEED": "7"}))


@pytest.fixture(scope="session")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with its transformer in the folder itself."""
    folder = tmp_path_factory.mktemp("flat") / "model"
    write_model(folder, transformer="")
    return folder


# --------------------------------------------------------------------------------------- it is written


def test_an_export_says_what_it_does_and_how_to_serve_it(run: Run) -> None:
    """A line for each step with its time, the table, and how to go on; nothing else."""
    assert run.done.returncode == 0, run.done.stderr
    *steps, last = run.done.stderr.splitlines()
    assert [step.split()[0] for step in steps] == list(WROTE)
    assert all(re.search(r" \.\.\. \d+\.\d s$", step) for step in steps)
    assert f"`headlight --model {run.folder}`" in last
    assert f"HEADLIGHT_MODEL={run.folder}" in last
    lines = run.done.stdout.splitlines()
    assert lines[0].split() == ["what", "inputs", "largest", "difference", "bound", "ok"]
    assert len(lines) == 1 + 3 * 7  # random tokens, texts and interventions
    assert all(line.endswith("yes") for line in lines[1:])


def moved(layout: Layout, folder: Path) -> dict[str, Any]:
    """A layout, its folders named from where the model lies."""
    named = {
        name: [(kind, place.relative_to(folder)) for kind, place in getattr(layout, name)]
        for name in ("steps", "modules")
    }
    return {**vars(layout), "transformer": layout.transformer.relative_to(folder), **named}


def test_the_folder_has_all_that_the_model_s_has_but_the_transformer_s_weights(run: Run) -> None:
    """It is laid out alike, and the graph stands at its top."""
    written, source = contents(run.folder), contents(run.model)
    assert moved(read_layout(run.folder), run.folder) == moved(read_layout(run.model), run.model)
    left_out = {"0_Transformer/model.safetensors", "training_data.json"}
    assert set(written) == {GRAPH, WEIGHTS, CHANGED, MANIFEST} | (set(source) - left_out)
    assert all(written[name] == source[name] for name in set(source) - left_out)


def test_the_folder_is_served_under_the_name_of_the_model(run: Run) -> None:
    """Whatever it is called itself, unless another name is given."""
    assert run.folder.name != "small"
    assert list(parse_models(str(run.folder))) == ["small"]
    assert list(parse_models(f"own={run.folder}")) == ["own"]


def test_the_manifest_says_what_was_made_of_what(run: Run) -> None:
    """Digests of what was read and written, versions, and the comparison; no place and no time."""
    text = (run.folder / MANIFEST).read_text(encoding="utf-8")
    manifest = json.loads(text)
    parity = manifest.pop("parity")
    files = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in contents(run.folder).items()
        if name in {GRAPH, WEIGHTS, CHANGED}
    }
    weights = ("0_Transformer/model.safetensors", "2_Dense/model.safetensors")
    assert manifest == {
        "format": "1",
        "model": "small",
        "family": "bert",
        "dtype": "float32",
        "opset": OPSET,
        "max_length": 40,
        "source_weights": {
            name: hashlib.sha256((run.model / name).read_bytes()).hexdigest() for name in weights
        },
        "files": files,
        "versions": {
            "headlight": version("headlight-server"),
            "torch": torch.__version__,
            "onnx": version("onnx"),
            "onnxscript": version("onnxscript"),
            "onnxruntime": version("onnxruntime"),
        },
    }
    assert {row["inputs"] for row in parity} == {"random tokens", "texts", "interventions"}
    assert all(row["ok"] and row["largest"] <= row["bound"] <= 1e-4 for row in parity)
    assert str(run.model) not in text
    assert "/" not in text.replace("0_Transformer/", "").replace("2_Dense/", "")


def test_the_graph_says_what_it_is(run: Run) -> None:
    """Its metadata has the format, the precision and the sizes."""
    model = onnx.load(run.folder / GRAPH, load_external_data=False)
    assert {entry.key: entry.value for entry in model.metadata_props} == {
        "headlight.format": "1",
        "headlight.dtype": "float32",
        "headlight.family": "bert",
        "headlight.layers": "1",
        "headlight.heads": "4",
        "headlight.hidden_size": "32",
    }


def test_the_same_model_gives_the_same_bytes(run: Run, tmp_path: Path) -> None:
    """In another process, with another seed of Python's hashes, in another folder, put over an old one."""
    folder = tmp_path / "again"
    folder.mkdir()
    (folder / "old.txt").write_text("old", encoding="utf-8")
    assert main([str(run.model), str(folder), "--overwrite"]) == 0
    assert contents(folder) == contents(run.folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_plain_model_is_laid_out_plainly(flat: Path, tmp_path: Path) -> None:
    """With the transformer in the folder itself, all of it stands there."""
    copy_contents(flat, read_layout(flat), tmp_path)
    assert moved(read_layout(tmp_path), tmp_path) == moved(read_layout(flat), flat)
    assert not (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "2_Dense/model.safetensors").exists()
    assert (tmp_path / "tokenizer.json").exists()


def test_a_tokenizer_that_was_built_is_written(tmp_path: Path) -> None:
    """Of an older folder, which has only a vocab.txt: the exported one has an equal tokenizer.json."""
    model, target = tmp_path / "model", tmp_path / "target"
    write_bert(model)
    take_vocabulary_apart(model)
    folder = read_folder(model)
    copy_contents(model, folder.layout, target)
    add_tokenizer(folder, target)
    written = TextTokenizer.from_file(target / "tokenizer.json", max_length=64)
    texts = ["the man beats the boy", "", "日本 [SEP] hello"]
    assert written.encode(texts) == folder.tokenizer.encode(texts)


def test_a_module_outside_of_the_model_is_refused(flat: Path, tmp_path: Path) -> None:
    """Nothing is copied from, or to, where modules.json points beside the folder."""
    model, target = tmp_path / "model", tmp_path / "place/target"
    model.mkdir()
    modules = [
        {"idx": 0, "path": "", "type": "a.Transformer"},
        {"idx": 1, "path": "../out", "type": "a.Pooling"},
    ]
    (model / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"modules\.json: .*'\.\./out' .* is not a folder inside"):
        copy_contents(model, read_layout(model), target)
    assert not (tmp_path / "place").exists()


# ------------------------------------------------------------------------------------- it is not written


def test_eight_bits_that_lose_too_much_are_told_by_a_few_texts(
    flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else is compared then, which takes minutes for a large model; the way out is more bits."""
    bounds: dict[str, dict[Quantity, float]] = {
        "random tokens": {},
        "texts": {"1 - sentence cosine": 1e-9},
        "interventions": {},
    }
    monkeypatch.setitem(PRECISIONS, "int8", replace(PRECISIONS["int8"], bounds=bounds))
    assert main([str(flat), str(tmp_path / "missed"), "--quantize", "int8"]) == 1
    out, err = capsys.readouterr()
    rows = out.splitlines()[1:]
    assert rows
    assert all("  first texts  " in row for row in rows)
    assert err.splitlines()[-1].endswith(
        "by more than its bound (1 - sentence cosine of first texts), and was deleted: export with --for "
        "vnni or arm64 (weights of eight bits instead of seven), or in float32, or serve the model with "
        "PyTorch."
    )
    assert not list(tmp_path.iterdir())


def test_a_graph_without_weights_is_not_exported(
    flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is what an export makes: it is served, and nothing needs to be fetched."""
    shutil.copytree(flat, tmp_path / "graph")
    (tmp_path / "graph/model.safetensors").rename(tmp_path / "graph/model.onnx")
    assert main([str(tmp_path / "graph"), str(tmp_path / "new")]) == 1
    told = f"export: {tmp_path}/graph has a graph but no weights to export: serve it as it is.\n"
    assert capsys.readouterr().err.endswith(told)
    assert not (tmp_path / "new").exists()


def test_a_missed_bound_leaves_nothing(
    flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table shows what is missed, the exit code is 1, and what stood there before still does."""
    bounds: dict[str, dict[Quantity, float]] = {
        "random tokens": {"attention": 1e-12},
        "texts": {"scores": 1e-12},
        "interventions": {},
    }
    monkeypatch.setitem(PRECISIONS, "float16", replace(PRECISIONS["float16"], bounds=bounds))
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "old.txt").write_text("old", encoding="utf-8")
    assert main([str(flat), str(folder), "--dtype", "float16", "--overwrite"]) == 1
    out, err = capsys.readouterr()
    missed = [line.split() for line in out.splitlines() if line.endswith("NO")]
    assert [line[0] for line in missed] == ["attention", "scores"]
    sentence = err.splitlines()[-1]
    assert sentence.startswith(
        "export: The exported graph differs from PyTorch by more than its bound (attention of"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert contents(folder) == {"old.txt": b"old"}


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_a_disk_that_is_full_leaves_nothing(flat: Path, tmp_path: Path) -> None:
    """A file that cannot be written to its end is one sentence."""
    done = export(flat, tmp_path / "out", preexec_fn=limit_files)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert SENTENCE.fullmatch(done.stderr.splitlines(keepends=True)[-1])
    assert "cannot be read or written: File too large" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_export_leaves_nothing(flat: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, or a signal to end, while the graph is traced."""
    process = subprocess.Popen(
        command(flat, tmp_path / "out"),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run behind a shell's `&`, Ctrl-C is ignored, and so it would be here.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread holds a lock
    )
    assert process.stderr is not None
    with process:
        said = ""
        while "Tracing" not in said:
            letter = process.stderr.read(1)
            assert letter, said
            said += letter
        assert [path.suffix for path in tmp_path.iterdir()] == [".new"]
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.endswith("export: Interrupted: nothing was written.\n")
    assert "Traceback" not in rest
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["{tmp}/none", "{tmp}/out"],
            "{tmp}/none is not a folder with a checkpoint: name an existing folder, or a hub name as "
            "org/name.",
        ),
        (
            ["{tmp}/empty", "{tmp}/out"],
            "{tmp}/empty/config.json is missing: fetch the model again, with all its files.",
        ),
        (["{model}", "{tmp}/no/out"], "{tmp}/no is not a folder: create it, or write to another folder."),
        (
            ["{model}", "{tmp}/full"],
            "{tmp}/full is not empty: write to another folder, or replace it with --overwrite.",
        ),
        (["{model}", "{tmp}/file", "--overwrite"], "{tmp}/file is a file: write to another folder."),
        (
            ["{model}", "{model}", "--overwrite"],
            "{model} contains the model itself: write to another folder.",
        ),
        (
            ["{model}", "{model}/..", "--overwrite"],
            "{parent} contains the model itself: write to another folder.",
        ),
        (["{model}", "/dev", "--overwrite"], "/dev is a mount point, which cannot be replaced"),
    ],
)
def test_what_cannot_be_done_is_refused(
    flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    """One sentence, exit code 1, and nothing is touched."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    for file in ("full/mine.txt", "file"):
        (tmp_path / file).write_text("mine", encoding="utf-8")
    before = contents(tmp_path), contents(flat)
    names = {"tmp": tmp_path, "model": flat, "parent": flat.parent}
    assert main([argument.format(**names) for argument in arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines(keepends=True)[-1]
    assert SENTENCE.fullmatch(last)
    assert last.startswith(f"export: {sentence.format(**names)}")
    assert (contents(tmp_path), contents(flat)) == before
