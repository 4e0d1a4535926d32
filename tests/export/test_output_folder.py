"""A folder appears whole or not at all."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from export.errors import ExportError
from export.output_folder import check_place, clear_remains, whole
from tests.references.checkpoints import write_bert
from tests.support.serving import ROOT, START_S

pytestmark = pytest.mark.thorough


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
    with pytest.raises(ExportError, match="1_Pooling is part of the model itself"):
        check_place(part, tmp_path, overwrite=True)
    check_place(tmp_path / "exported", tmp_path, overwrite=False)


# ------------------------------------------------------------------------------- exports that are killed

HOLD = """
import sys, time
from pathlib import Path
from export import output_folder as placing
if sys.argv[2] == "between":  # what a kill between the two renames leaves
    placing.shutil.rmtree = lambda *_, **__: None
    def stop(target, new, old):
        target.rename(old)
        print("held", flush=True)
        time.sleep(600)
    placing._replace = stop
with placing.whole(Path(sys.argv[1])) as new:
    (new / "part").write_text("half")
    if sys.argv[2] == "within":
        print("held", flush=True)
        time.sleep(600)
"""


@contextmanager
def exporting(target: Path, where: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that is writing a folder, and has got to some place in it."""
    command = [sys.executable, "-c", HOLD, str(target), where]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


def hidden(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir() if path.name.startswith("."))


def test_what_a_killed_export_left_is_taken_away_and_nothing_else(tmp_path: Path) -> None:
    """Not the folder that a running one is writing, nor one of another target, nor one of the user's."""
    target, other = tmp_path / "target", tmp_path / "target.2"
    for name in (".target.new", ".target.backup", ".target.1.newer"):
        (tmp_path / name).mkdir()
    with exporting(target, "within") as killed:
        killed.kill()
        killed.wait()
    with exporting(target, "within"), exporting(other, "within"):
        assert hidden(tmp_path).count(".new") == 4
        clear_remains(target)
        assert hidden(tmp_path).count(".new") == 3
    clear_remains(target)
    assert hidden(tmp_path).count(".new") == 2
    clear_remains(other)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".target.1.newer", ".target.backup", ".target.new"]


def test_a_kill_between_two_names_loses_nothing(tmp_path: Path) -> None:
    """The folder that was to be replaced was set aside already: it comes back, once its export is gone."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old", encoding="utf-8")
    with exporting(target, "between") as killed:
        clear_remains(target)
        assert hidden(tmp_path) == [".new", ".old"]
        killed.kill()
        killed.wait()
    clear_remains(target)
    assert contents(tmp_path) == {"target/old": b"old"}
    assert hidden(tmp_path) == []


def wait_for(happened: Callable[[], object]) -> None:
    until = time.monotonic() + START_S
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_next_export_clears_up_after_one_that_was_killed(tmp_path: Path) -> None:
    """The command itself, with a real `kill -9` while it writes."""
    write_bert(tmp_path / "source", num_hidden_layers=1)
    command = [sys.executable, "-m", "export", str(tmp_path / "source"), str(tmp_path / "made")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as killed:
        wait_for(lambda: hidden(tmp_path))
        killed.kill()
    assert hidden(tmp_path) == [".new"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "source"]
