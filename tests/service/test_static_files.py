"""Files that are made once: what is sent of them, and to whom nothing."""

import asyncio
import gzip
from collections.abc import Mapping

import pytest
from starlette.requests import Request

from service.http.static_files import Once, StaticFile
from service.problems import Problem

CONTENT = bytes(range(256)) * 8
FILE = StaticFile.of(CONTENT, "text/plain", {"Cache-Control": "no-cache"})


def asked(**headers: str) -> Request:
    """A request with these headers; `if_range` is If-Range."""
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": sent})


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [("gzip", "gzip"), ("gzip, zstd", "zstd"), ("br", None), ("", None), ("gzip," * 1000, None)],
)
def test_a_file_is_sent_in_the_coding_that_a_client_knows(accepted: str, coding: str | None) -> None:
    """None if it names very many of them; the bytes are those of the start."""
    response = FILE.response(asked(accept_encoding=accepted))
    assert response.headers.get("content-encoding") == coding
    assert response.body is FILE.bodies[coding]
    assert response.headers["vary"] == "Accept-Encoding"
    assert response.headers["cache-control"] == "no-cache"
    assert gzip.decompress(FILE.bodies["gzip"]) == CONTENT


@pytest.mark.parametrize("tags", ["{tag}", '"a", {tag}', "*", '"b"', '"a",' * 1000 + "{tag}"])
def test_a_client_that_has_the_file_gets_none(tags: str) -> None:
    """304 without a body, with the tag; a list of very many tags is not read."""
    response = FILE.response(asked(if_none_match=tags.format(tag=FILE.tag)))
    has = len(tags) < 100 and tags != '"b"'
    assert (response.status_code, response.body) == ((304, b"") if has else (200, CONTENT))
    assert response.headers["etag"] == FILE.tag


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [("0-9", 0, 10), ("5-", 5, 2048), ("-5", 2043, 2048), ("-9999", 0, 2048), ("2040-9999", 2040, 2048)],
)
def test_a_range_is_a_part(given: str, start: int, end: int) -> None:
    """Of the plain bytes, from the start, to the end, or the last ones (RFC 9110 §14.1.2)."""
    response = FILE.part(asked(range=f"bytes={given}", accept_encoding="gzip"))
    assert (response.status_code, response.body) == (206, CONTENT[start:end])
    assert response.headers["content-range"] == f"bytes {start}-{end - 1}/2048"
    assert response.headers["content-length"] == str(end - start)


WHOLE: list[Mapping[str, str]] = [
    {},
    {"range": "bytes=0-1,5-6"},
    {"range": "bytes=" + "0-1," * 100 + "2-3"},
    {"range": "bytes=0-1", "if_range": FILE.tag},
]


@pytest.mark.parametrize("headers", WHOLE)
def test_what_is_no_single_range_is_the_whole(headers: Mapping[str, str]) -> None:
    """Several ranges may be answered so, and a condition that a weak tag never fulfils (§13.1.5)."""
    response = FILE.part(asked(**headers))
    assert (response.status_code, response.body) == (200, CONTENT)


@pytest.mark.parametrize(
    ("given", "status"), [("bytes=2048-", 416), ("bytes=5-1", 400), ("bytes", 400), ("lines=1-2", 400)]
)
def test_a_range_that_is_none_is_refused(given: str, status: int) -> None:
    """Beyond the end, or no range of bytes."""
    with pytest.raises(Problem) as refused:
        FILE.part(asked(range=given))
    assert refused.value.status == status


def test_what_is_made_once_is_made_once() -> None:
    """However many ask for it while it is made; what failed is tried again."""
    made = list[int]()

    def make() -> int:
        made.append(len(made))
        if len(made) == 1:
            raise OSError("no files are left")
        return made[-1]

    async def ask() -> list[object]:
        once = Once(make)
        first = await asyncio.gather(*[once.get() for _ in range(3)], return_exceptions=True)
        second = await asyncio.gather(*[once.get() for _ in range(3)])
        return [type(one) for one in first] + [*second, await once.get()]

    assert asyncio.run(ask()) == [OSError] * 3 + [1] * 4
