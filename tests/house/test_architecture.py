"""The arrows of the house: who may import whom, and how long a file may be."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("model", "export", "service")
FORBIDDEN = {
    "model": {"service", "export", "fastapi", "starlette", "uvicorn", "prometheus_client", "transformers"},
    "service": {"export", "torch", "onnxruntime", "transformers"},
    "export": {"service", "fastapi", "starlette", "uvicorn", "prometheus_client", "transformers"},
}
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[str]:
    """Every dotted name that a piece of code imports, wherever in it the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute: import path = file path"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported(path: Path, *, at_load: bool = False) -> set[str]:
    """The names that a file imports; `at_load` leaves out what functions import when they are called."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if at_load:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                node.body = []
    return set(imports(tree))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_arrow_turns(path: Path) -> None:
    """model/ knows nothing above it, service/ nothing of torch, export/ only model/, none transformers."""
    package = path.relative_to(ROOT).parts[0]
    roots = {name.partition(".")[0] for name in imported(path)}
    assert not roots & FORBIDDEN[package]


def test_the_client_knows_nothing_of_the_service() -> None:
    """Other people's programs import it where nothing else of headlight is installed."""
    folder = ROOT / "client" / "python" / "headlight_client"
    roots = {name.partition(".")[0] for path in folder.glob("*.py") for name in imported(path)}
    assert roots >= {"httpx", "numpy", "headlight_client"}
    assert not roots & {*PACKAGES, "torch", "pydantic", "fastapi"}


def test_references_know_nothing_of_the_product() -> None:
    """An expected number never comes from what it is compared with, nor from a helper that runs it."""
    for path in (ROOT / "tests" / "references").glob("*.py"):
        names = imported(path)
        assert not {name.partition(".")[0] for name in names} & {*PACKAGES, "headlight_client"}, path
        ours = {name for name in names if name.startswith("tests")}
        assert all(name.startswith("tests.references") for name in ours), path


def test_the_packages_are_there() -> None:
    """The checks of this file look at files that exist."""
    assert {module_name(path) for path in MODULES} >= {"model.encoder.encoder", "service", "export"}


def test_imports_are_found_wherever_they_stand() -> None:
    """An import inside a function, a class or a condition counts as one at the top does."""
    source = "def f():\n    if x:\n        import torch.nn as nn\nclass A:\n    from service import app"
    assert set(imports(ast.parse(source))) == {"torch.nn", "service", "service.app"}


def test_loading_the_model_loads_nothing_above_it() -> None:
    """The rule of the source holds in a process: all of model/ runs without HTTP, metrics or export/."""
    names = [module_name(path) for path in MODULES if path.relative_to(ROOT).parts[0] == "model"]
    program = f"import sys, {', '.join(names)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert loaded >= set(names)
    assert not loaded & FORBIDDEN["model"]


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Some cycle of a graph, or nothing."""
    done: set[str] = set()

    def visit(name: str, above: list[str]) -> list[str]:
        if name in above:
            return [*above[above.index(name) :], name]
        if name in done:
            return []
        found = next((c for n in sorted(graph[name]) if (c := visit(n, [*above, name]))), [])
        done.add(name)
        return found

    return next((c for name in sorted(graph) if (c := visit(name, []))), [])


def test_no_imports_go_in_a_circle() -> None:
    """The modules can be read in an order in which each only needs those before it."""
    names = {module_name(path) for path in MODULES}
    graph = {
        module_name(path): (imported(path, at_load=True) & names) - {module_name(path)} for path in MODULES
    }
    assert graph["model.encoder.encoder"] >= {"model.encoder.attention", "model.encoder.packing"}
    assert not cycle(graph)
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def room(module: str) -> str:
    """The folder of a module below its package; a module that lies in the package itself is its own room."""
    return ".".join(module.split(".")[:2])


def rooms(package: str) -> dict[str, set[str]]:
    """Which rooms of a package each of its rooms imports from."""
    names = {module_name(path) for path in MODULES if path.relative_to(ROOT).parts[0] == package} - {package}
    graph: dict[str, set[str]] = {room(name): set() for name in names}
    for path in MODULES:
        if (name := module_name(path)) in names:
            graph[room(name)] |= {room(other) for other in imported(path) & names} - {room(name)}
    return graph


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_know_only_those_below_them(package: str) -> None:
    """Folders too can be read in an order: none needs, through others, one that needs it."""
    assert not cycle(rooms(package))


def test_general_rooms_know_no_special_ones() -> None:
    """Encoders know no accelerator, inspection no kernels, the engine no HTTP, and HTTP no protocol."""
    model, service = rooms("model"), rooms("service")
    assert model["model.encoder"] == {"model.errors", "model.progress"}
    assert "model.pytorch" not in model["model.inspection"] | model["model.onnx"]
    assert service["service.engine"] <= {"service.telemetry", "service.sharing", "service.system"}
    assert service["service.sharing"] == set()
    assert "service.protocols" not in service["service.http"]
    http = {"starlette", "fastapi", "uvicorn", "httptools", "httpx"}
    for path in (ROOT / "service" / "engine").glob("*.py"):
        assert not {name.partition(".")[0] for name in imported(path)} & http, path


def test_tasks_know_no_wire() -> None:
    """What can be asked of a model is said without HTTP, schemas, JSON or a protocol."""
    wire = {"pydantic", "pydantic_core", "starlette", "fastapi", "orjson"}
    files = list((ROOT / "service" / "tasks").glob("*.py"))
    assert len(files) > 8
    for path in files:
        names = imported(path)
        assert not {name.partition(".")[0] for name in names} & wire, path
        assert not [name for name in names if name.startswith(("service.http", "service.protocols"))], path


def test_no_protocol_knows_another() -> None:
    """What two protocols need stands beside them; requests of one are never made of those of another."""
    protocols = [
        path for path in (ROOT / "service" / "protocols").iterdir() if (path / "__init__.py").exists()
    ]
    assert {path.name for path in protocols} >= {"native", "openai", "tei", "cohere", "oip", "ollama"}
    for folder in protocols:
        others = tuple(f"service.protocols.{path.name}" for path in protocols if path != folder)
        for path in folder.rglob("*.py"):
            assert not [name for name in imported(path) if name.startswith(others)], path
    for path in (ROOT / "service").rglob("*.py"):
        assert "model_construct" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("package", ["model", "service"])
def test_contributing_lists_each_room_below_those_that_it_knows(package: str) -> None:
    """Its table has every folder, in an order in which each imports only folders above it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)/`", text.partition(f"| **`{package}/`**")[2].partition("| **")[0], re.M)
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert sorted(listed) == sorted(folders)
    known = rooms(package)
    for number, name in enumerate(listed):
        above = {f"{package}.{other}" for other in listed[:number]}
        assert known[f"{package}.{name}"] & {f"{package}.{other}" for other in folders} <= above, name


FOLDERS = {
    path.parent
    for suffix in (".py", ".cpp", ".h")
    for package in (*PACKAGES, "benchmarks")
    for path in (ROOT / package).rglob(f"*{suffix}")
}


@pytest.mark.parametrize("folder", sorted(FOLDERS), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_room_has_more_than_16_files(folder: Path) -> None:
    """More files of code than that, C++ included, are more than one room."""
    inside = [path for path in folder.iterdir() if path.suffix in (".py", ".cpp", ".h")]
    assert 1 <= len(inside) <= 16


@pytest.mark.parametrize("folder", [*PACKAGES, "tests", "benchmarks"])
def test_no_file_is_longer_than_400_lines(folder: str) -> None:
    """One concept per file: what needs more than 400 lines is more than one."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {path: lines for path, lines in lengths.items() if lines > 400} == {}
