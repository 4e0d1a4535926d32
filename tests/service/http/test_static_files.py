"""Files that are made once: what is sent of them, and to whom nothing."""

import asyncio
import gzip

import pytest
from starlette.requests import Request

from service.http.static_files import Once, StaticFile

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
