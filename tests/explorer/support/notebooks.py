"""A service with a key, a JupyterLab beside it, and tabs that show its notebooks: fixtures of two files."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.explorer.support.explored import Explorer
from tests.explorer.support.jupyter import Jupyter, jupyterlab
from tests.support.serving import Service, serve

TEXT = "The cat sat on the mat."
KEY = "a-secret-key"
CLIENT = """import os
from headlight_client import Explorer, Headlight
client = Headlight(os.environ["SERVICE_URL"], api_key=os.environ["SERVICE_KEY"])
"""
Opened = Callable[[Path], Explorer]


@pytest.fixture(scope="module")
def guarded(planted: Path) -> Iterator[Service]:
    """A service that answers only those who have the key."""
    with serve(model=planted, api_keys=KEY) as started:
        started.http.headers["Authorization"] = f"Bearer {KEY}"
        yield started


@pytest.fixture(scope="module")
def jupyter(guarded: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """A JupyterLab whose kernels find the service."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVICE_URL", guarded.url)
        patch.setenv("SERVICE_KEY", KEY)
        with jupyterlab(tmp_path_factory.mktemp("jupyter")) as started:
            yield started


@pytest.fixture
def opened(browser: Any, jupyter: Jupyter) -> Iterator[Opened]:
    """Opens notebooks in tabs, about which the browser has nothing to report at the end of the test."""
    tabs: list[Explorer] = []

    def open_tab(notebook: Path) -> Explorer:
        context = browser.new_context(viewport={"width": 1440, "height": 1600}, color_scheme="light")
        lab = Explorer(context.new_page(), jupyter.url)
        lab.page.goto(jupyter.address(notebook))
        tabs.append(lab)
        return lab

    yield open_tab
    found = [problem for lab in tabs for problem in lab.found()]
    for lab in tabs:
        lab.page.context.close()
    jupyter.end_kernels()
    assert found == []


def run(lab: Explorer, cell: int) -> None:
    """Run a cell, which JupyterLab forgets as long as its kernel is not connected."""
    code = lab.page.locator(".jp-Notebook .jp-CodeCell").nth(cell)
    for _ in range(20):
        code.locator(".cm-content").click()
        lab.page.keyboard.press("Control+Enter")
        lab.page.wait_for_timeout(250)
        if code.locator(".jp-InputPrompt").inner_text() != "[ ]:":
            return
    raise AssertionError("JupyterLab does not run the cell.")


def shown(jupyter: Jupyter, opened: Opened, cells: Sequence[str]) -> tuple[Explorer, Path]:
    """Open a notebook of cells, run the first, and wait for its explorer."""
    notebook = jupyter.notebook(cells)
    lab = opened(notebook)
    lab.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    run(lab, 0)
    lab.token(2).wait_for()
    return lab, notebook


def printed(lab: Explorer, cell: int) -> Any:
    """Run a cell, and find what it prints."""
    run(lab, cell)
    return lab.page.locator(".jp-Notebook .jp-CodeCell").nth(cell).locator(".jp-OutputArea-output pre").last


def save(lab: Explorer, notebook: Path, awaited: str) -> str:
    """Save the notebook, and return its content once it has this text."""
    lab.page.keyboard.press("Control+s")
    lab.becomes(lambda: notebook.read_text(encoding="utf-8").count(awaited) > 0, expected=True)
    return notebook.read_text(encoding="utf-8")
