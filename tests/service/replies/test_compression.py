"""Content codings: which one is chosen, and that a reader gets what was written, as soon as it was."""

import gzip
import zlib
from typing import Any

import pytest
from backports import zstd

from service.replies.compression import CODINGS, choose_coding, encoder
from service.replies.writing import coded


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("gzip, deflate", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.5, gzip;q=0.6", "gzip"),
        ("x-gzip", "gzip"),
        ("GZIP", "gzip"),
        ("*", "zstd"),
        ("zstd;q=0, *;q=0.1", "gzip"),
        ("gzip;q=0.5, *;q=0.8", "zstd"),
        ("gzip, identity", "gzip"),
        ("gzip;q=0.5, identity;q=0.6", None),
        ("gzip;q=0", None),
        ("*;q=0", None),
        ("identity;q=0", None),
        ("identity;q=0, br", None),
        ("br, deflate", None),
        ("identity", None),
        ("", None),
    ],
)
def test_the_coding_that_is_liked_best_is_chosen(header: str, chosen: str | None) -> None:
    """By q-value, then zstd before gzip; no coding where a client knows neither or wants none."""
    assert choose_coding(header) == chosen


def reader(coding: str) -> Any:
    return zstd.ZstdDecompressor() if coding == "zstd" else zlib.decompressobj(31)


@pytest.mark.parametrize("coding", CODINGS)
def test_what_was_flushed_can_be_read_before_the_end(coding: str) -> None:
    """A line of ndjson is whole at the reader's when it has been sent."""
    coder, read = encoder(coding), reader(coding)
    for i in range(20):
        line = b"line %d\n" % i * 1000
        assert b"".join(map(read.decompress, coded([line[:10], line[10:]], coder, end=False))) == line
    assert b"".join(map(read.decompress, coded([b"last"], coder, end=True))) == b"last"
    assert read.eof


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("pieces", [[], [b""], [b"a"], [memoryview(b"0.123456," * 50_000), b"]"] * 3])
def test_an_answer_is_read_as_it_was_written(coding: str, pieces: list[bytes]) -> None:
    """Short and long ones, with the readers of the standard library."""
    whole = b"".join(coded(pieces, encoder(coding), end=True))
    decode = gzip.decompress if coding == "gzip" else zstd.decompress
    assert decode(whole) == b"".join(pieces)
    assert len(whole) < 100 + len(b"".join(pieces)) / 3
