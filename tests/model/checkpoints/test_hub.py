"""A model of the hub is fetched at the revision and with the token given, or refused in a sentence."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from model.checkpoints.hub import _SMALL
from model.tokenization import building
from service.setting_values import parse_models
from tests.references.checkpoints import write_bert
from tests.references.router import write_router
from tests.references.static import write_model2vec
from tests.support.serving import ROOT, serve

pytestmark = pytest.mark.thorough

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz01234567"
DENIED = {
    "org/missing": (404, "RepoNotFound"),
    "org/private": (401, "RepoNotFound"),
    "org/gated": (403, "GatedRepo"),
    "org/broken": (500, ""),
}


@dataclass
class Hub:
    """A server that speaks as much of the hub's API as a download needs, and notes what it was asked."""

    folders: dict[str, Path]
    url: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """Answers for `hub`, which a subclass has."""

    hub: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        parts = path.removeprefix("/api/models").strip("/").split("/")
        repository, rest = "/".join(parts[:2]), parts[2:]
        if repository in DENIED:
            status, code = DENIED[repository]
            self.answer(status, b"{}", **{"X-Error-Code": code})
        elif repository not in self.hub.folders:
            self.answer(404, b"{}")  # what the library asks of its own accord
        else:
            self.hub.asked.append((path, self.headers["Authorization"]))
            self.serve(repository, rest)

    def serve(self, repository: str, rest: list[str]) -> None:
        folder = self.hub.folders[repository]
        if rest[0] == "resolve":
            file = folder.joinpath(*rest[2:])
            self.answer(
                200, file.read_bytes(), **{"X-Repo-Commit": COMMIT, "ETag": f'"{"-".join(rest[2:])}"'}
            )
        elif rest[0] == "tree":
            self.answer(200, json.dumps(tree(folder)).encode())
        elif rest[1:] in (["main"], ["v1.5"], ["refs%2Fpr%2F7"], [COMMIT]):
            self.answer(200, json.dumps({"id": repository, "sha": COMMIT, "siblings": []}).encode())
        else:
            self.answer(404, b"{}", **{"X-Error-Code": "RevisionNotFound"})

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        """Leave standard error alone."""


def tree(folder: Path) -> list[dict[str, Any]]:
    """The files of a repository, as the API lists them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        {
            "type": "file",
            "path": path.relative_to(folder).as_posix(),
            "size": path.stat().st_size,
            "oid": "0" * 40,
        }
        for path in files
    ]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub of a model and of one whose weights are pickled."""
    place = tmp_path_factory.mktemp("hub")
    hub = Hub({"org/name": place / "name", "org/pickled": place / "pickled"})
    for folder in hub.folders.values():
        write_bert(folder)
    (place / "pickled/model.safetensors").rename(place / "pickled/pytorch_model.bin")
    with ThreadingHTTPServer(("127.0.0.1", 0), type("OfHub", (Handler,), {"hub": hub})) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield hub
        server.shutdown()
        thread.join()


LOAD = (
    "import sys; from model.errors import ModelError; from model.loading import load_model\n"
    "try: print(load_model(sys.argv[1], device='cpu', dtype='float32')[1].info.layers)\n"
    "except ModelError as error: print(error); sys.exit(1)"
)
LIST_GRAPHS = (
    "import sys; from model.checkpoints.source import resolve\n"
    "place = resolve(sys.argv[1], graph=True)\n"
    "print(*sorted(file.relative_to(place).as_posix() for file in place.rglob('*.onnx*')))"
)


def load(
    hub: Hub, source: str, home: Path, program: str = LOAD, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Load a model in a process of its own, as the library reads its environment once."""
    kept = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
    environment = {**kept, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home), "HF_ENDPOINT": hub.url, **variables}
    command = [sys.executable, "-c", program, source]
    return subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, env=environment, timeout=120
    )


@pytest.mark.parametrize(("write", "layers"), [(write_model2vec, 0), (write_router, 2)])
def test_tables_of_token_vectors_and_of_queries_are_fetched(
    hub: Hub, write: Callable[[Path], object], layers: int, tmp_path: Path
) -> None:
    """Wherever modules.json or router_config.json have them; the first one needs no graph, either."""
    hub.folders["org/table"] = tmp_path / "table"
    write(tmp_path / "table")
    for number, kind in enumerate(("auto", "onnx") if not layers else ("auto",)):
        program = LOAD.replace("device='cpu'", f"kind='{kind}', device='cpu'")
        done = load(hub, "org/table", tmp_path / str(number), program)
        assert (done.returncode, done.stdout) == (0, f"{layers}\n"), done.stderr


@pytest.mark.parametrize(
    ("source", "asked"), [("org/name@v1.5", "v1.5"), ("org/name@refs/pr/7", "refs%2Fpr%2F7")]
)
def test_the_revision_and_the_token_arrive(hub: Hub, source: str, asked: str, tmp_path: Path) -> None:
    """A branch or tag behind the @ is what is fetched, each request carries HF_TOKEN, and the model loads."""
    del hub.asked[:]
    done = load(hub, source, tmp_path, HF_TOKEN=TOKEN)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    paths = [path for path, _ in hub.asked]
    assert f"/api/models/org/name/revision/{asked}" in paths
    assert {token for _, token in hub.asked} == {f"Bearer {TOKEN}"}
    assert any(path.endswith("/model.safetensors") for path in paths)


def test_without_either_the_main_branch_is_asked_for_by_nobody(hub: Hub, tmp_path: Path) -> None:
    """And what was fetched once serves without the hub."""
    del hub.asked[:]
    assert load(hub, "org/name", tmp_path).returncode == 0
    assert hub.asked[0] == ("/api/models/org/name/revision/main", None)
    del hub.asked[:]
    assert load(hub, "org/name", tmp_path, HF_HUB_OFFLINE="1").returncode == 0
    assert not hub.asked


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("org/missing", "the hub has no model of this name, or it is private; check it, or set HF_TOKEN"),
        ("org/private", "the hub has no model of this name, or it is private; check it, or set HF_TOKEN"),
        ("org/gated", "it is gated; accept its terms on the hub, and set HF_TOKEN to a token of an account"),
        ("org/name@v9", "it has no such revision; name one of its branches, tags or commits after the @"),
        ("org/broken", "the hub answered 500; try again later, or name a folder"),
    ],
)
def test_what_cannot_be_fetched_is_refused(hub: Hub, source: str, said: str, tmp_path: Path) -> None:
    """One sentence with the name, the reason and the way out."""
    done = load(hub, source, tmp_path)
    told = f"{source} is neither a folder nor a model that could be fetched from the hub: {said}"
    assert (done.returncode, done.stdout.count("\n")) == (1, 1)
    assert done.stdout.startswith(told)


def test_without_the_network_the_cache_is_all_there_is(hub: Hub, tmp_path: Path) -> None:
    """The variable that forbids it is named."""
    done = load(hub, "org/name", tmp_path, HF_HUB_OFFLINE="1")
    assert (
        "it is not in the cache, and HF_HUB_OFFLINE is set; set HF_HUB_OFFLINE=0, or name a folder."
        in done.stdout
    )


def test_pickled_weights_are_not_fetched_and_the_way_out_is_said(hub: Hub, tmp_path: Path) -> None:
    """Nothing pickled is asked for; two commands make a folder of it."""
    del hub.asked[:]
    done = load(hub, "org/pickled@v1.5", tmp_path)
    assert done.returncode == 1
    assert "org/pickled@v1.5 has no safetensors on the hub" in done.stdout
    assert "HEADLIGHT_MODEL=./pickled." in done.stdout
    assert done.stdout.count("revision=") == 2
    assert not any(path.endswith(".bin") for path, _ in hub.asked)


@pytest.fixture
def large(hub: Hub, tmp_path: Path) -> Iterator[Path]:
    """A repository of sentence-transformers in shards, with much beside them that is not needed."""
    folder = tmp_path / "large"
    model = write_bert(folder / "0_Transformer")
    (folder / "0_Transformer/model.safetensors").unlink()
    model.save_pretrained(folder / "0_Transformer", max_shard_size="20KB")
    write_pooling(folder)
    for name in UNNEEDED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"not to be read")
    hub.folders["org/large"] = folder
    yield folder
    del hub.folders["org/large"]


UNNEEDED = (
    *(
        "pytorch_model.bin",
        "0_Transformer/pytorch_model.bin",
        "0_Transformer/tf_model.h5",
        "model.safetensors",
    ),
    *("0_Transformer/other.safetensors", "onnx/model.onnx", "onnx/model_O4.onnx", "onnx/config.json"),
    *(
        "openvino/openvino_model.xml",
        "1_Pooling/model.safetensors.bak",
        "image.png",
        "README.md",
        "train.json",
    ),
)


def write_pooling(folder: Path) -> None:
    """Add the files of sentence-transformers around a transformer in its own folder."""
    kinds = {"Transformer": "0_Transformer", "Pooling": "1_Pooling"}
    modules = [{"type": f"sentence_transformers.models.{k}", "path": path} for k, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))


def test_only_files_that_are_read_are_fetched(hub: Hub, large: Path, tmp_path: Path) -> None:
    """Configs, the tokenizer and the shards that the index names; all of one commit."""
    del hub.asked[:]
    done = load(hub, "org/large", tmp_path / "home")
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stdout + done.stderr
    fetched = {path.partition("/resolve/")[2] for path, _ in hub.asked if "/resolve/" in path}
    assert {path.partition("/")[0] for path in fetched} == {COMMIT}
    names = {path.partition("/")[2] for path in fetched}
    shards = {f"0_Transformer/{file.name}" for file in (large / "0_Transformer").glob("model-*")}
    assert len(shards) > 1
    assert shards | {"modules.json", "1_Pooling/config.json", "0_Transformer/tokenizer.json"} <= names
    assert not names & {*UNNEEDED}


@pytest.mark.parametrize(
    ("there", "fetched"),
    [
        (
            [
                "onnx/model_int8.onnx",
                "onnx/model_quantized.onnx",
                "onnx/model_quantized.onnx_data",
                "model_O4.onnx",
            ],
            "onnx/model_quantized.onnx onnx/model_quantized.onnx_data",
        ),
        (
            ["model_optimized.onnx", "model_optimized.onnx.data"],
            "model_optimized.onnx model_optimized.onnx.data",
        ),
        (["onnx/model.onnx", "onnx/model_fp16.onnx"], "onnx/model.onnx"),
        (["model_O4.onnx"], ""),
    ],
)
def test_of_many_graphs_the_one_to_run_is_fetched(
    hub: Hub, there: list[str], fetched: str, tmp_path: Path
) -> None:
    """Under any of the names that a folder's graph may have, the most exact one, with its weights."""
    folder = tmp_path / "graphs"
    write_bert(folder)
    for name in there:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"a graph")
    hub.folders["org/graphs"] = folder
    done = load(hub, "org/graphs", tmp_path / "home", LIST_GRAPHS)
    assert (done.returncode, done.stdout.strip()) == (0, fetched), done.stderr


def test_without_a_terminal_the_log_says_how_far_a_download_is(hub: Hub, tmp_path: Path) -> None:
    """Lines in the log in the place of bars, which would fill it with control characters."""
    program = (
        "import logging; logging.basicConfig(level='INFO', format='%(name)s %(message)s')\n"
        "from model.checkpoints.source import resolve; resolve('org/name')"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.url}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=environment)
    size = (hub.folders["org/name"] / "model.safetensors").stat().st_size / 1e6
    assert f"model.checkpoints.hub downloaded {size:.1f} of {size:.1f} MB" in done.stderr
    assert "\r" not in done.stderr


def test_a_cache_that_cannot_be_written_is_told(hub: Hub, tmp_path: Path) -> None:
    """With the setting that moves it, and not with advice about the network."""
    (tmp_path / "file").touch()
    done = load(hub, "org/name", tmp_path / "file" / "home")
    told = (
        r"org/name is neither a folder nor a model that could be fetched from the hub: \[Errno \d+\] .*home.*"
        r"; set HF_HOME to a folder that can be written, or name a folder\.\n"
    )
    assert re.fullmatch(told, done.stdout), done.stdout
    assert done.returncode == 1


def test_the_log_of_a_service_has_no_request_to_the_hub(hub: Hub, tmp_path: Path) -> None:
    """Its libraries log each of them at info; what is fetched, and how far it is, is enough."""
    variables = {"HF_HOME": tmp_path, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": 0}
    launcher = ["env", *(f"{name}={value}" for name, value in variables.items())]
    with serve("--model", "org/name", launcher=launcher) as started:
        assert "downloaded" in started.log
        assert "HTTP" not in started.log


def test_a_revision_is_a_part_of_the_source_and_not_of_the_name() -> None:
    """Alone and behind a name of its own."""
    assert parse_models("org/name@v1.5,mine=org/name@refs/pr/7") == {
        "name": "org/name@v1.5",
        "mine": "org/name@refs/pr/7",
    }


def test_the_files_of_every_tokenizer_are_fetched() -> None:
    """A tokenizer that can be built from files of a folder can be built from those of a repository."""
    assert {file for kind in building._KINDS.values() for file in kind.files} <= {*_SMALL}
