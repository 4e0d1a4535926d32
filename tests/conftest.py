"""The services and references that tests share; each is started when the first test asks for it."""

import gc
import json
import os
import signal
import subprocess
import zlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from model.checkpoints.source import resolve
from tests.references.attention import in_float64
from tests.references.checkpoints import MINILM, SUITED, Reference, write_bert
from tests.references.classifiers import Classifier, write_classifier
from tests.references.cross_encoder import SIGMOID, CrossEncoder, write_cross_encoder
from tests.references.fitted import write_fitted
from tests.references.splade import write_sparse_encoder
from tests.support.attention_answers import Subject
from tests.support.backends import BACKENDS, PLAIN, Kept, native
from tests.support.families import SIZES
from tests.support.serving import KEY, Service, serve

# The same examples in every run, however slow the machine is at the moment.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


# Files about requests that are refused before a model runs, and about choices among maps, whose numbers are
# proven in process with each backend: over HTTP one of them is enough.
ONCE_OVER_HTTP = frozenset(
    f"tests.contract.{name}"
    for name in (
        "test_invalid_requests",
        "test_attention_refusals",
        "test_fuzz",
        "test_attention_options",
        "test_attention_rows",
        "test_attention_summary",
    )
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, and leave what is made then out of all that follow.

    It lives to the end: to look at it again and again takes six of fourteen seconds here, and a second of
    each test that asks for a collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked `both_backends`, and needs one, with each.

    What clients see over HTTP hardly depends on what runs the model, whose numbers are proven in process:
    there ONNX Runtime is `thorough`, or `repeated` in some files, and PyTorch without our kernels is
    `repeated`.
    """
    if "backend" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_backends"):
        over_http = "kept" in metafunc.fixturenames
        first, *others = BACKENDS
        further = pytest.mark.repeated if metafunc.module.__name__ in ONCE_OVER_HTTP else pytest.mark.thorough
        marks = {PLAIN: [pytest.mark.repeated], "onnx": [further]} if over_http else {}
        backends = [first, *(pytest.param(name, marks=marks.get(name, ())) for name in others)]
        metafunc.parametrize("backend", backends, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make a third of the cases of each test that is marked `in_turns` quick, and the others `thorough`.

    They prove one sentence many times over. Which third is quick changes with the commit, so that all cases
    have run after a few commits; of two cases, one. They are ordered by a checksum of their names: in their
    own order, every third case may have the same precision.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("in_turns"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    turn = _turn() if cases else 0
    for test in cases.values():
        test.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        parts = min(3, len(test))
        for place, item in enumerate(test):
            if place % parts != turn % parts:
                item.add_marker(pytest.mark.thorough)


def _turn() -> int:
    """Return which third of the cases is quick in this commit: 0 to 2, and 0 where there is no repository.

    The remainder by 12 chooses CI's thorough files, so the quotient chooses here, and for the browser's files
    the quotient by 36.
    """
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=7", "HEAD"]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return int(known or "0", 16) // 12 % 3


PROMPTS = {"query": "the man: ", "passage": "hello world "}


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """The services and exported folders of each backend."""
    with ExitStack() as stack:
        yield Kept(stack, tmp_path_factory.mktemp("graphs"))


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """What runs the models: PyTorch, with `both_backends` also without our kernels, and ONNX Runtime."""
    return str(getattr(request, "param", "torch"))


@pytest.fixture(scope="session")
def service(kept: Kept, backend: str) -> Service:
    """The service as it comes: the embedded model, default limits."""
    return kept.service(("service", backend), lambda: kept.embedded(backend, max_batch_tokens="auto"))


@pytest.fixture(scope="session")
def plain() -> Iterator[Service]:
    """The embedded model with default limits, and batches whose size is not measured."""
    with serve() as started:
        yield started


@pytest.fixture(scope="session")
def strict() -> Iterator[Service]:
    """A service with tiny limits that logs everything as JSON."""
    with serve(
        request_timeout_s=1.5,
        max_body_bytes=4000,
        max_inputs=4,
        max_response_bytes=50_000,
        log_format="json",
        log_level="debug",
    ) as started:
        yield started


@pytest.fixture(scope="session")
def narrow() -> Iterator[Service]:
    """A service whose responses are small, and which every page may ask."""
    with serve(max_response_bytes=20_000, cors_origins="*") as started:
        yield started


@pytest.fixture(scope="session")
def hurried() -> Iterator[Service]:
    """A service that soon loses patience with connections: idle ones, and readers that stand still."""
    with serve(
        keep_alive_s=1, request_timeout_s=2, max_response_bytes=32 * 2**20, log_format="json"
    ) as started:
        yield started


@pytest.fixture(scope="session")
def guarded() -> Iterator[Service]:
    """The embedded model for clients that have the KEY."""
    with serve(api_keys=KEY) as started:
        yield started


@pytest.fixture(scope="session")
def failing() -> Iterator[Service]:
    """The embedded model, which fails on a word and hangs on another; its tokenizer panics at pairs."""
    with serve(module="tests.support.doubles") as started:
        yield started


@pytest.fixture(scope="session")
def prompted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with prompts, one of them the default, that are left out of the pooling."""
    folder = tmp_path_factory.mktemp("models") / "prompted"
    write_bert(folder, **SUITED)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    pooling = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True, "include_prompt": False}
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    prompts = {"prompts": PROMPTS, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def several(kept: Kept, backend: str, prompted_folder: Path) -> Service:
    """A service of two models, with a small batch and queue so that it is soon overloaded."""

    def start() -> AbstractContextManager[Service]:
        mini, prompted = (kept.folder(folder, backend) for folder in (resolve(MINILM), prompted_folder))
        models = f"mini={mini},prompted={prompted}"
        return serve(model=models, max_batch_tokens=256, max_queue_tokens=512, threads=1, **native(backend))

    return kept.service(("several", backend), start)


@pytest.fixture(scope="session")
def reference() -> Reference:
    """The embedded model as `transformers` runs it."""
    return Reference.load(resolve(MINILM))


@pytest.fixture(scope="session")
def prompted_reference(prompted_folder: Path) -> Reference:
    """The model with prompts as `transformers` runs it."""
    return Reference.load(prompted_folder)


@pytest.fixture(scope="session")
def mini(service: Service, reference: Reference) -> Subject:
    """The embedded model, served, and in float64."""
    return Subject(service, in_float64(reference))


@pytest.fixture(scope="session")
def prompted(several: Service, prompted_reference: Reference) -> Subject:
    """The small random model with prompts, served, and in float64."""
    return Subject(several, in_float64(prompted_reference), "prompted", PROMPTS["query"], PROMPTS)


@pytest.fixture(scope="session")
def uniform_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model whose queries are zero, so that it attends to all tokens alike."""
    folder = tmp_path_factory.mktemp("models") / "uniform"
    model = write_bert(folder, **SUITED)
    for block in model.encoder.layer:
        block.attention.self.query.weight.data.zero_()
        block.attention.self.query.bias.data.zero_()
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def uniform(kept: Kept, backend: str, uniform_folder: Path) -> Subject:
    """That model, served, and in float64."""
    started = kept.service(
        ("uniform", backend),
        lambda: serve(model=kept.folder(uniform_folder, backend), threads=1, **native(backend)),
    )
    return Subject(started, in_float64(Reference.load(uniform_folder)))


@pytest.fixture(scope="session")
def tei_ranker(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoder:
    """A small cross-encoder."""
    place = tmp_path_factory.mktemp("ranker")
    return write_cross_encoder(place / "ranker", "Bert", "with modules", SIGMOID, num_labels=1, **SIZES)


@pytest.fixture(scope="session")
def tei_classifier(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    """A small classifier of three labels."""
    return write_classifier(tmp_path_factory.mktemp("labels") / "labels", ["sad", "plain", "glad"], **SUITED)


@pytest.fixture(scope="session")
def tei(
    tmp_path_factory: pytest.TempPathFactory,
    tei_ranker: CrossEncoder,
    tei_classifier: Classifier,
    prompted_folder: Path,
) -> Iterator[Service]:
    """The embedded model first, and small ones of every other kind."""
    place = tmp_path_factory.mktemp("models")
    write_sparse_encoder(place / "splade", **SUITED)
    write_fitted(place / "names", tokens=True)
    folders = {
        "mini": resolve(MINILM),
        "ranker": tei_ranker.folder,
        "labels": tei_classifier.folder,
        "splade": place / "splade",
        "names": place / "names",
        "prompted": prompted_folder,
    }
    models = ",".join(f"{name}={folder}" for name, folder in folders.items())
    # So much that requests of the most tokens are let in, however slow the machine is.
    with serve(model=models, request_timeout_s=120) as started:
        yield started


@pytest.fixture(scope="session")
def tei_ranking(tei_ranker: CrossEncoder) -> Iterator[Service]:
    """A service whose first model ranks."""
    with serve(model=tei_ranker.folder, max_inputs=4) as started:
        yield started


def _fitted(folder: Path, *, tokens: bool) -> Path:
    write_fitted(folder, tokens=tokens)
    return folder


@pytest.fixture(scope="session")
def tei_moods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose only model labels texts."""
    with serve(model=_fitted(tmp_path_factory.mktemp("moods") / "mood", tokens=False)) as started:
        yield started


@pytest.fixture(scope="session")
def tei_names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose only model labels tokens."""
    with serve(model=_fitted(tmp_path_factory.mktemp("names") / "names", tokens=True)) as started:
        yield started


@pytest.fixture(scope="session")
def tei_words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose only model makes sparse vectors."""
    folder = tmp_path_factory.mktemp("words") / "splade"
    write_sparse_encoder(folder, **SUITED)
    with serve(model=folder) as started:
        yield started


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread of PyTorch, where two files of tests run at a time: more would wait for the same cores.

    For files that compare small models with a reference. What several threads compute, the tests of the
    kernels prove.
    """
    before = torch.get_num_threads()
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def hang_up_not_ignored() -> Iterator[None]:
    """Services that a test starts ignore SIGHUP if the tests do, as under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
