"""A JupyterLab that opens notebooks, with the Python client of this checkout in their kernels."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

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
_SAVE_WIDGETS = "@jupyter-widgets/jupyterlab-manager/plugin.jupyterlab-settings"


@dataclass
class Jupyter:
    """A running one, which reads no settings of other installations."""

    url: str
    folder: Path
    environment: Mapping[str, str]

    def notebook(self, cells: Sequence[str]) -> Path:
        """Write a notebook that was never run."""
        path = self.folder / "notebooks" / f"{uuid4().hex}.ipynb"
        path.write_text(json.dumps(_notebook(cells)), encoding="utf-8")
        return path

    def address(self, notebook: Path) -> str:
        """Where it is opened, in a workspace of its own."""
        return f"{self.url}/lab/workspaces/{notebook.stem}/tree/{notebook.name}"

    def end_kernels(self) -> None:
        """Shut all kernels down, as its menu does."""
        with httpx.Client(base_url=self.url, trust_env=False) as http:
            http.get("/lab").raise_for_status()
            headers = {"X-XSRFToken": http.cookies["_xsrf"]}
            for session in http.get("/api/sessions").raise_for_status().json():
                http.delete(f"/api/sessions/{session['id']}", headers=headers).raise_for_status()

    def save_widgets(self) -> None:
        """Choose *Settings, Save Widget State Automatically*."""
        path = self.folder / "jupyterlab_settings_dir" / _SAVE_WIDGETS
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"saveState": True}), encoding="utf-8")

    def convert(self, notebook: Path, *options: str) -> None:
        """Run nbconvert."""
        subprocess.run(
            [tool("jupyter-lab").replace("jupyter-lab", "jupyter-nbconvert"), *options, notebook],
            env=self.environment,
            check=True,
            capture_output=True,
            timeout=120,
        )


@contextmanager
def jupyterlab(folder: Path) -> Iterator[Jupyter]:
    """Start one."""
    jupyter = tool("jupyter-lab")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    own = {name: str(folder / name.lower()) for name in _FOLDERS}
    # Its kernel is the `python` beside it.
    path = f"{Path(jupyter).parent}:/usr/bin:/bin"
    environment = {**os.environ, **own, "PATH": path, "PYTHONPATH": str(ROOT / "client" / "python")}
    port = free_port()
    place = [f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={notebooks}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([jupyter, *_QUIET, *place], env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process, folder / "log")
        yield Jupyter(url, folder, environment)
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
