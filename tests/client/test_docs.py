"""docs/client.md is a program that prints what it shows."""

import re
import subprocess
import sys

from tests.support.serving import ROOT, Service

PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.+?)```\n```text\n(.+?)```", PAGE, flags=re.DOTALL)


def test_the_page_prints_what_it_shows(service: Service) -> None:
    """Its examples, one after another, are run as they stand, and print what stands below each."""
    mark = "----"
    program = f"\nprint({mark!r})\n".join(code for code, _ in BLOCKS)
    program = program.replace("http://127.0.0.1:8000", service.url)
    ran = subprocess.run(
        [sys.executable, "-c", program + "\nclient.close()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout.split(f"{mark}\n")
    assert printed == [shown for _, shown in BLOCKS]
    assert "300/300" in ran.stderr


def test_all_its_examples_are_run() -> None:
    """A block of Python without what it prints would not be tested."""
    assert PAGE.count("```python\n") == len(BLOCKS) == 10
