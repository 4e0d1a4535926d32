"""Whatever lies in a model's folder, it is served or refused: in a sentence, in little time and memory."""

import resource
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from model.errors import ModelError
from model.loading import load_model
from tests.support.hostile_cases import CASES
from tests.support.hostile_folders import JSON_FILES, NO_JSON, NO_WEIGHTS, WEIGHTS, Damage, write_whole
from tests.support.serving import free_port, run_command

LONGEST_S = 20
"""All take milliseconds; the bound is for a machine that is busy with something else."""
MOST_MB = 1500
"""What all of them together may add to the peak of memory; the largest file that is parsed has 12 MB."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sentence-transformers with all that there may be."""
    return write_whole(tmp_path_factory.mktemp("hostile") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to be damaged."""
    return shutil.copytree(whole, tmp_path / "model")


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """Interrupt what would hang, a FIFO that is opened for one."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(LONGEST_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module", autouse=True)
def _frugal(whole: Path) -> Iterator[None]:
    """Hold the peak of memory to a bound."""
    load_model(str(whole), device="cpu", dtype="float32")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < MOST_MB, f"the peak grew by {grown:.0f} MB"


def refusal(folder: Path) -> str:
    """The sentence in which a folder is refused."""
    start = time.monotonic()
    with pytest.raises(ModelError) as caught:
        load_model(str(folder), device="cpu", dtype="float32")
    assert time.monotonic() - start < LONGEST_S
    sentence = str(caught.value)
    assert str(folder) in sentence
    assert sentence.endswith(".")
    assert not sentence.endswith("..")
    assert sentence.isprintable()
    assert len(sentence) < 1200
    return sentence


def test_the_folder_is_served_as_long_as_it_is_whole(folder: Path) -> None:
    """What is refused below is refused for its damage alone."""
    _, backend = load_model(str(folder), device="cpu", dtype="float32")
    assert (backend.info.sentence_size, backend.info.max_length) == (8, 64)


@pytest.mark.parametrize("what", NO_JSON)
@pytest.mark.parametrize("name", JSON_FILES)
def test_what_is_no_description_is_refused(folder: Path, name: str, what: str) -> None:
    """In the place of each JSON file: no file at all, no JSON, JSON of something else, or too much of it."""
    NO_JSON[what](name)(folder)
    assert name in refusal(folder)


@pytest.mark.parametrize("what", NO_WEIGHTS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_what_is_no_file_of_weights_is_refused(folder: Path, name: str, what: str) -> None:
    """In the place of each safetensors file."""
    NO_WEIGHTS[what](name)(folder)
    assert name in refusal(folder)


@pytest.mark.parametrize("what", CASES)
def test_a_folder_that_cannot_work_is_refused(folder: Path, what: str) -> None:
    """Every file is there and can be read, and does not fit: the refusal says which field, and why."""
    damage, said = CASES[what]
    damage(folder)
    assert said in refusal(folder)


COMMANDS = [
    pytest.param("layers without end", marks=pytest.mark.thorough),
    "NaN in a matrix",
    "an unknown default prompt",
    "no token for the unknown",
    "a module above",
    "FIFO",
]


@pytest.mark.parametrize("what", COMMANDS)
def test_the_command_line_says_it_in_a_line(folder: Path, what: str) -> None:
    """Exit code 1, no traceback, and at the end the same sentence."""
    damage: Damage = NO_JSON[what]("tokenizer.json") if what in NO_JSON else CASES[what][0]
    damage(folder)
    code, out, err = run_command("--model", str(folder), port=free_port(), log_level="error")
    assert (code, out, err) == (1, "", f"headlight: {refusal(folder)}\n")
