"""A JupyterLab that opens a notebook, with the Python client of this checkout in its kernel."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.deploy.tools import tool
from tests.support.serving import ROOT, free_port

START_S = 30
_FOLDERS = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "IPYTHONDIR",
)
_QUIET = (
    *("--no-browser", "--allow-root", "--ip=127.0.0.1", "--IdentityProvider.token=", "--LabApp.news_url="),
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)


@contextmanager
def jupyterlab(folder: Path, cells: Sequence[str]) -> Iterator[str]:
    """Start one that reads no settings of other installations; returns the address of a notebook of cells."""
    jupyter = tool("jupyter-lab")
    notebook = folder / "notebooks" / "explorer.ipynb"
    notebook.parent.mkdir()
    notebook.write_text(json.dumps(_notebook(cells)), encoding="utf-8")
    own = {name: str(folder / name.lower()) for name in _FOLDERS}
    port = free_port()
    place = [f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={notebook.parent}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [jupyter, *_QUIET, *place],
            # Its kernel is the `python` beside it.
            env={
                **os.environ,
                **own,
                "PATH": f"{Path(jupyter).parent}:/usr/bin:/bin",
                "PYTHONPATH": str(ROOT / "client" / "python"),
            },
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process, folder / "log")
        yield f"{url}/lab/tree/{notebook.name}"
    finally:
        process.terminate()  # and its kernels with it
        process.wait(20)


def _notebook(cells: Sequence[str]) -> object:
    shared: dict[str, object] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{**shared, "id": f"cell-{i}", "source": cell} for i, cell in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/api/status", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text('utf-8')}")
