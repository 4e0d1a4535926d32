"""A folder appears whole or not at all."""

from pathlib import Path

import pytest

from export.errors import ExportError
from export.placing import check_place, whole


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_folder_takes_the_place_of_another(tmp_path: Path) -> None:
    """What was there is gone when the new one stands, and not before."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old", encoding="utf-8")
    with whole(target) as new:
        (new / "new").write_text("new", encoding="utf-8")
        assert contents(target) == {"old": b"old"}
    assert contents(tmp_path) == {"target/new": b"new"}


def test_a_folder_appears_where_there_was_none(tmp_path: Path) -> None:
    """Also through a link, which stays one, and with the permissions that any new folder has."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with whole(tmp_path / "link") as new:
        (new / "new").write_text("new", encoding="utf-8")
    (tmp_path / "other").mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "other", "target"]
    assert contents(tmp_path / "target") == {"new": b"new"}
    assert (tmp_path / "target").stat().st_mode == (tmp_path / "other").stat().st_mode


def interrupt(target: Path, error: type[BaseException]) -> None:
    with whole(target) as new:
        (new / "new").write_text("new", encoding="utf-8")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ExportError])
def test_an_error_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    """Whatever ends the writing."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old", encoding="utf-8")
    with pytest.raises(error):
        interrupt(target, error)
    assert contents(tmp_path) == {"target/old": b"old"}
    assert len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_put_in_place_puts_back_what_was_there(tmp_path: Path) -> None:
    """The new folder vanished before it could be moved: the old one stands."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old", encoding="utf-8")
    with pytest.raises(FileNotFoundError), whole(target) as new:
        new.rmdir()
    assert contents(tmp_path) == {"target/old": b"old"}


def test_a_part_of_the_model_is_not_replaced(tmp_path: Path) -> None:
    """Not even where folders may be; a new folder within the model's is one like any other."""
    part = tmp_path / "1_Pooling"
    part.mkdir()
    check_place(part, tmp_path, overwrite=True)
    (part / "config.json").touch()
    with pytest.raises(ExportError, match="1_Pooling is a part of the model itself"):
        check_place(part, tmp_path, overwrite=True)
    check_place(tmp_path / "exported", tmp_path, overwrite=False)
