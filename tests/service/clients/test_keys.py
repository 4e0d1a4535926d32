"""Which keys are accepted: those given, and those of a file that may change."""

import itertools
import logging
import string
from collections.abc import Callable
from pathlib import Path

import pytest

from service.clients.keys import KeyFile, KeyFileError, Keys, open_key_file
from service.problems import Problem
from service.setting_values import parse_keys

FIRST, SECOND, THIRD = "first-0123456789abcdef", "second-0123456789abcd", "third-0123456789abcde"


def opens(keys: Keys, key: str | None) -> bool:
    try:
        keys.check(None if key is None else f"Bearer {key}")
    except Problem:
        return False
    return True


def read(file: Path, given: frozenset[str] = frozenset()) -> tuple[KeyFile, Keys]:
    """Read a key file; returns what rereads it, and the accepted keys."""
    key_file = KeyFile(file, given)
    return key_file, Keys(given, key_file.published)


def twice(key_file: KeyFile) -> None:
    """What was read twice alike counts."""
    key_file.reload()
    key_file.reload()


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", set()),
        ("\n  \n", set()),
        ("a", {"a"}),
        ("a,b , c", {"a", "b", "c"}),
        ("a\nb\r\n\n# c\n  # d, e\na==", {"a", "b", "a=="}),
        ("A-z.0_~+/==", {"A-z.0_~+/=="}),
        ("\ta \t\r\t# b\x85c\xa0\rd", {"a", "d"}),
    ],
)
def test_keys_are_read_from_lines_and_commas(text: str, keys: set[str]) -> None:
    """One per line or separated by commas; blank lines and comments are none."""
    assert parse_keys(text) == keys


@pytest.mark.parametrize(
    "text", ["a b", "ä", "a\nb;c", "=a", '"quoted"', "a\x00", "a\xa0", "a\n\x85b", "\u2028a", "a,\xa0"]
)
def test_a_key_that_no_client_could_send_is_refused_without_repeating_it(text: str) -> None:
    """The sentence says where it is, and never what it was."""
    with pytest.raises(ValueError, match=r"line [12] has a key") as refused:
        parse_keys(text)
    assert text not in str(refused.value)


def test_without_keys_everybody_may_ask() -> None:
    """No setting, no door."""
    keys = Keys()
    assert not keys.required
    assert opens(keys, None)
    assert opens(keys, "whatever")


def test_each_of_several_keys_opens_and_nothing_else_does() -> None:
    """Neither a part of a key, nor more than it, nor another case, nor another scheme."""
    keys = Keys(frozenset({FIRST, SECOND}))
    assert opens(keys, FIRST)
    assert opens(keys, SECOND)
    for wrong in (
        None,
        "",
        THIRD,
        FIRST[:-1],
        FIRST + "x",
        FIRST.upper(),
        f"{FIRST},{SECOND}",
        f"{FIRST} x",
        "é",
    ):
        assert not opens(keys, wrong), wrong
    for header in (FIRST, f"Bearer {FIRST}, Bearer {FIRST}", f"Basic {FIRST}", "Bearer", ""):
        with pytest.raises(Problem):
            keys.check(header)
    keys.check(f"bearer {FIRST}")  # schemes know no case (RFC 9110 §11.1)
    keys.check(f"Bearer  \t{FIRST}\t ")


def test_keys_themselves_are_not_kept() -> None:
    """Only digests are: a dump of the object shows no key."""
    assert FIRST not in repr(vars(Keys(frozenset({FIRST}))))


def test_a_file_takes_the_place_of_what_it_was(tmp_path: Path) -> None:
    """A new set counts when it was read twice alike, and the old one until then."""
    file = tmp_path / "keys"
    file.write_text(f"{FIRST}\n", encoding="utf-8")
    key_file, keys = read(file)
    file.write_text(f"{SECOND}\n{THIRD}\n", encoding="utf-8")
    key_file.reload()
    assert opens(keys, FIRST)
    assert not opens(keys, SECOND)
    key_file.reload()
    assert not opens(keys, FIRST)
    assert opens(keys, SECOND)
    assert opens(keys, THIRD)


def test_given_keys_stay_beside_those_of_the_file(tmp_path: Path) -> None:
    """Both settings together open to the keys of both, whatever becomes of the file."""
    file = tmp_path / "keys"
    file.write_text(SECOND, encoding="utf-8")
    key_file, keys = read(file, frozenset({FIRST}))
    assert opens(keys, FIRST)
    assert opens(keys, SECOND)
    file.write_text("", encoding="utf-8")
    twice(key_file)
    assert opens(keys, FIRST)
    assert not opens(keys, SECOND)


def test_an_empty_file_locks(tmp_path: Path) -> None:
    """From the start or later, nobody gets in; never everybody."""
    file = tmp_path / "keys"
    file.write_text("# none yet\n", encoding="utf-8")
    key_file, keys = read(file)
    assert keys.required
    assert not opens(keys, None)
    assert not opens(keys, "")
    file.write_text(FIRST, encoding="utf-8")
    twice(key_file)
    assert opens(keys, FIRST)
    file.write_text("", encoding="utf-8")
    twice(key_file)
    assert not opens(keys, FIRST)
    assert not opens(keys, "")


def test_a_link_is_followed_to_where_it_points_now(tmp_path: Path) -> None:
    """Orchestrators turn a link of a folder to rotate a secret; the file's own name stays."""
    for name, key in (("old", FIRST), ("new", SECOND)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys").write_text(key, encoding="utf-8")
    (tmp_path / "now").symlink_to("old")
    (tmp_path / "keys").symlink_to("now/keys")
    key_file, keys = read(tmp_path / "keys")
    assert opens(keys, FIRST)
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").replace(tmp_path / "now")
    twice(key_file)
    assert opens(keys, SECOND)
    assert not opens(keys, FIRST)


def put_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


FAULTS: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "a folder": put_a_folder,
    "no text": lambda file: file.write_bytes(b"\xff\xfe\x00"),
    "a key with a space": lambda file: file.write_text("two words", encoding="utf-8"),
    "too large": lambda file: file.write_text("# " + "x" * 2**20, encoding="utf-8"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_last_good_keys_are_kept_and_the_fault_is_told_once(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that cannot be used neither opens nor locks; it is used again when it is whole."""
    file = tmp_path / "keys"
    file.write_text(FIRST, encoding="utf-8")
    key_file, keys = read(file)
    FAULTS[fault](file)
    with caplog.at_level(logging.ERROR):
        for _ in range(4):
            key_file.reload()
    assert opens(keys, FIRST)
    (told,) = caplog.messages
    assert str(file) in told
    assert "two words" not in told
    if file.is_dir():
        file.rmdir()
    file.write_text(SECOND, encoding="utf-8")
    twice(key_file)
    assert opens(keys, SECOND)
    assert not opens(keys, FIRST)


def test_the_largest_file_has_room(tmp_path: Path) -> None:
    """A megabyte of the shortest keys that differ: each opens."""
    file = tmp_path / "keys"
    file.write_text(FIRST, encoding="utf-8")
    key_file, keys = read(file)
    letters = string.ascii_letters + string.digits + "-._~+/"
    short = ("".join(key) for size in (1, 2, 3) for key in itertools.product(letters, repeat=size))
    text = ",".join(short)[: 2**20].rpartition(",")[0]
    file.write_text(text, encoding="utf-8")
    twice(key_file)
    assert len(keys.names) > 200_000
    assert not opens(keys, FIRST)
    for key in ("a", "/", "aa", text.rpartition(",")[2]):
        assert opens(keys, key)


def test_the_number_of_keys_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the process that reads the file: those of the file and those given, each counted once."""
    file = tmp_path / "keys"
    file.write_text(f"{FIRST},{SECOND}", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        key_file = open_key_file(frozenset({FIRST, THIRD}), file)
        assert key_file is not None
        Keys(frozenset({FIRST, THIRD}), key_file.published)
        file.write_text("", encoding="utf-8")
        twice(key_file)
        assert open_key_file(frozenset(), None) is None
    assert caplog.messages == ["3 API key(s) are accepted", "the API keys have changed: 2 are accepted"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_used_ends_the_start(fault: str, tmp_path: Path) -> None:
    """In one sentence, rather than serving everybody or nobody."""
    file = tmp_path / "keys"
    file.write_text(FIRST, encoding="utf-8")
    FAULTS[fault](file)
    with pytest.raises(KeyFileError, match=str(file)):
        KeyFile(file)


def test_a_file_without_keys_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the start and when it is emptied: all clients are refused, and nothing else says why."""
    file = tmp_path / "keys"
    file.write_text("# none yet", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        key_file = open_key_file(frozenset(), file)
        assert key_file is not None
        for text in (FIRST, "", SECOND):
            file.write_text(text, encoding="utf-8")
            twice(key_file)
    locked = "; all requests are refused until a key is added"
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", f"0 API key(s) are accepted{locked}"),
        ("INFO", "the API keys have changed: 1 are accepted"),
        ("WARNING", f"the API keys have changed: 0 are accepted{locked}"),
        ("INFO", "the API keys have changed: 1 are accepted"),
    ]
