"""The stop words of a folder are read like its other files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from model.errors import CheckpointError
from model.tokenization.keywords import FILE, KeywordFinder
from tests.references.checkpoints import write_tokenizer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "is a FIFO"),
        (Path.mkdir, "is a folder"),
        (lambda file: file.symlink_to("missing"), "is a link to a missing file"),
        (lambda file: file.write_bytes(bytes(2**24 + 1)), "bytes"),
        (lambda file: file.write_bytes(b"the\n\xff\n"), "is not UTF-8 at byte 4"),
    ],
    ids=["FIFO", "folder", "dangling link", "too large", "not UTF-8"],
)
def test_a_file_that_cannot_be_read_ends_the_start(
    make: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    """The model would be served without keywords, or a file of any size be read."""
    write_tokenizer(tmp_path)
    make(tmp_path / FILE)
    with pytest.raises(CheckpointError, match=FILE) as caught:
        KeywordFinder.read(tmp_path, Tokenizer.from_file(str(tmp_path / "tokenizer.json")))
    assert message in str(caught.value)
