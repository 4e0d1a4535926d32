"""The files of the repository, as git knows them."""

import subprocess

from tests.support.serving import ROOT


def texts() -> dict[str, str]:
    """Every text file that is, or is about to be, in the repository, by its path."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    contents = {name: ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    read = {name: path.read_bytes() for name, path in contents.items()}
    return {name: content.decode() for name, content in read.items() if b"\0" not in content}
