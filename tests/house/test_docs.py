"""The documents say what is there, and what they show is what the service answers."""

import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from model.families.table import FAMILIES
from service.lifecycle import VERSION
from service.problems import KINDS
from service.protocols.endpoints import ENDPOINTS
from service.protocols.native.decode import DecodedItem
from service.protocols.native.explain import ExplainItem, FaithfulnessColumns, UnitColumns
from service.protocols.native.predict import Entity, LabelScore, PredictItem
from service.protocols.native.rerank import RankedItem, RerankResponse
from service.protocols.native.responses import AttentionItem, EncodeItem, Summary, TokenColumns
from service.protocols.native.similarity import SimilarityResponse
from service.settings import PREFIX, Settings
from service.telemetry.metrics import Metrics
from tests.references.fitted import write_fitted
from tests.support.serving import ROOT, Service, operations_labels, serve
from tests.support.tracked import texts

README = (ROOT / "README.md").read_text(encoding="utf-8")
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
PROTOCOLS = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
FORMATS = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
MONITORING = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "benchmarks").glob("*/*.md")),
    *sorted((ROOT / "client").glob("*/README.md")),
    *sorted((ROOT / "deploy").glob("*/README.md")),
]

# Numbers shown are float32's, as those of the service under test; some are rounded to two decimals.
TOLERANCE = 0.011
# What differs between any two runs, with the precision, or with the speed of the machine.
INCIDENTAL = {
    "request_id",
    "dtype",
    "model_dtype",
    "device",
    "kernels",
    "max_batch_tokens",
    "longest_text_s",
    "max_queue_tokens",
}


OMITTED = "…"
"""Stands for other members of an object, or further elements at the end of a list."""


@dataclass(frozen=True)
class Example:
    """A curl command of a document and the response that it shows."""

    document: str
    path: str
    body: str | None
    answer: str


def examples() -> list[Example]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        pattern = r"```console\n\$ (curl [^`$]+)\n```\n```json\n(.+?)\n```"
        for command, answer in re.findall(pattern, text, flags=re.DOTALL):
            words = shlex.split(command.replace("\\\n", " "))
            url = next(word for word in words if word.startswith("localhost:8000"))
            body = words[words.index("-d") + 1] if "-d" in words else None
            found.append(Example(document.name, url.removeprefix("localhost:8000"), body, answer))
    return found


def shown(answer: str) -> Any:
    """Read an example's JSON, in which `…` marks what is left out."""
    members = re.sub(rf"{OMITTED}(?=\s*[,}}])", f'"{OMITTED}": null', answer)
    return json.loads(re.sub(rf"{OMITTED}(?=\s*\])", f'"{OMITTED}"', members))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A classifier of texts and one of tokens, for the examples of what they label."""
    place = tmp_path_factory.mktemp("fitted")
    write_fitted(place / "mood", tokens=False)
    write_fitted(place / "names", tokens=True)
    with serve(model=f"{place / 'mood'},{place / 'names'}") as started:
        yield started


@pytest.mark.parametrize(
    "example", examples(), ids=lambda example: f"{example.document} {example.path} {example.body}"[:60]
)
def test_examples_are_real(example: Example, request: pytest.FixtureRequest) -> None:
    """Each curl command of the documents gets the response that they show."""
    labels = any(f'"model": "{name}"' in (example.body or "") for name in ("mood", "names"))
    service: Service = request.getfixturevalue("fitted" if labels else "service")
    headers = {"Content-Type": "application/json"}
    method = "GET" if example.body is None else "POST"
    answer = service.http.request(method, example.path, content=example.body, headers=headers).json()
    assert_alike(answer, shown(example.answer), example.path)


def test_every_json_response_shown_is_compared() -> None:
    """No block of JSON escapes the test above, and one response of each route is shown whole."""
    blocks = sum(document.read_text(encoding="utf-8").count("```json\n") for document in DOCUMENTS)
    assert len(examples()) == blocks
    whole = {example.path for example in examples() if OMITTED not in example.answer}
    native = {endpoint.path for endpoint in ENDPOINTS if endpoint.inference and endpoint.protocol == "native"}
    assert whole >= {*native, "/tei/embed", "/livez", "/readyz", "/info"}


def test_an_example_that_differs_is_found() -> None:
    """Only what `…` marks may be left out, and nothing may be changed."""
    answer = {"a": 1, "b": [1.0, 2.0, 3.0], "c": {"d": None}}
    for alike in ('{"a": 1, …}', '{"b": [1.0, …], …}', '{"a": 1, "c": {…}, "b": [1, 2.001, …]}'):
        assert_alike(answer, shown(alike), "")
    for different in ('{"a": 1}', '{"a": 2, …}', '{"b": [1.0], …}', '{"b": [1.1, …], …}', '{"e": 1, …}'):
        with pytest.raises(AssertionError):
            assert_alike(answer, shown(different), "")


@pytest.mark.parametrize("page", ["README.md", "docs/moving.md"])
def test_examples_of_the_client_print_what_they_show(page: str, service: Service) -> None:
    """The client's example runs as it stands."""
    pattern = r"```python\n(from headlight_client [^`]+?)```\n```text\n(.+?)```"
    ((code, printed),) = re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    code = code.replace("http://127.0.0.1:8000", service.url)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == printed


def test_the_archive_of_the_formats_is_read_as_shown(service: Service, tmp_path: Path) -> None:
    """Asked for as npz, maps are written to a file that NumPy reads."""
    (found,) = re.findall(
        r"```console\n\$ (curl [^`]+?maps\.npz.+?')\n(\([^\n]+)\n```", FORMATS, flags=re.DOTALL
    )
    commands = found[0].replace("\n$ ", "\n").replace("localhost:8000", service.url.removeprefix("http://"))
    commands = commands.replace(".venv/bin/python", sys.executable)
    ran = subprocess.run(
        ["bash", "-ec", commands], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
    )
    assert ran.stdout.strip() == found[1]


def test_the_python_of_the_formats_reads_an_archive(service: Service) -> None:
    """The example for binary formats runs as it stands, with what urllib sends by itself."""
    (code,) = re.findall(r"```python\n(.+?)```", FORMATS, flags=re.DOTALL)
    code = code.replace("http://127.0.0.1:8000", service.url) + "\nprint(maps.shape)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "(6, 12, 9, 9)\n"


def test_the_documents_say_what_is_served() -> None:
    """The table of families has every one that there is, and no others."""
    models = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    table = models.partition("\n## Families\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, flags=re.MULTILINE)
    listed = [name for row in rows if row != "`model_type`" for name in re.findall("`(.+?)`", row)]
    assert listed == list(FAMILIES)


def test_models_that_people_load_by_name_are_of_families_that_are_served() -> None:
    """Sixty at least; of all but the embedded one, the family alone was tested."""
    models = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    table = models.partition("\n## Models by name\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in re.findall(r"^\| .+/.+$", table, re.MULTILINE)
    ]
    assert len({row[0] for row in rows}) == len(rows) >= 60
    for name, families, *_, tested in rows:
        assert {*re.findall("`(.+?)`", families)} <= set(FAMILIES), name
        assert tested == ("weights" if name.endswith("/all-MiniLM-L6-v2") else "family"), name


def test_the_readme_is_short() -> None:
    """It shows what headlight is and how to start; the rest is in docs/."""
    assert len(README.splitlines()) <= 150


def test_every_page_is_linked_from_the_readme() -> None:
    """A page that no table lists would not be found."""
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in README] == []


def test_what_the_documents_have_one_write_is_ignored_by_git() -> None:
    """Following the documents leaves a clean working tree, and commits no key by mistake."""
    text = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    written = ["exported/", ".venv-onnx/", "my-model/", "attention.png", "maps.npz", "keys", ".env"]
    for name in written:
        assert name.strip("/") in text
    command = ["git", "check-ignore", *written]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert asked.stdout.split() == written


def test_every_operations_route_is_named() -> None:
    """Routes whose response is no JSON document are named, too."""
    for path in ("/health", "/metrics", "/openapi.json", "/docs"):
        assert path in API


def test_metrics_and_schema_begin_as_shown(service: Service) -> None:
    """docs/api.md shows the beginning of the responses of /metrics and /openapi.json."""
    exposition = service.http.get("/metrics").text
    for line in (f'headlight_build_info{{version="{VERSION}"}} 1.0', "headlight_ready 1.0"):
        assert line in API
        assert line in exposition
    schema = service.http.get("/openapi.json").text
    assert schema[:58] in API


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_documented(name: str) -> None:
    """docs/operations.md names each setting, and the setting describes itself for --help."""
    assert f"`{PREFIX}{name.upper()}`" in OPERATIONS
    assert Settings.model_fields[name].description


def test_no_setting_is_documented_that_is_not_there() -> None:
    """Each HEADLIGHT_ variable that a document names is a setting; the changelog may name removed ones."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    changes = ROOT / "CHANGELOG.md"
    removals = re.findall(r"\n### Removed\n(.*?)\n##", changes.read_text(encoding="utf-8"), re.DOTALL)
    removed = {
        name for text in removals for name in re.findall(r"^- `(HEADLIGHT_[A-Z_]+)`", text, re.MULTILINE)
    }
    assert not removed & known
    for document in DOCUMENTS:
        named = set(re.findall(r"HEADLIGHT_[A-Z_]+[A-Z]", document.read_text(encoding="utf-8")))
        assert named - (removed if document == changes else set()) <= known, document


def test_every_metric_is_documented() -> None:
    """docs/monitoring.md names each metric, with its labels, and none that is not there."""
    there = {metric.name.removesuffix("_total") for metric in Metrics("0", ENDPOINTS).defined}
    documented = {name.removesuffix("_total") for name in re.findall(r"`(headlight_[a-z_]+)`", MONITORING)}
    assert documented == there


def test_every_route_is_documented(service: Service) -> None:
    """docs/api.md names each native and each operations route, docs/protocols.md all others."""
    paths = service.http.get("/openapi.json").json()["paths"]
    others = {
        endpoint.documented_path
        for endpoint in ENDPOINTS
        if endpoint.protocol != "native" and endpoint.summary
    }
    assert others <= paths.keys()
    others |= {e.label for e in ENDPOINTS if e.protocol != "native" and not e.inference and e.label != "/v2"}
    for path in (paths.keys() | operations_labels(ENDPOINTS)) - others:
        assert f"{path}`" in API
    for path in others:  # the page says that each is under a prefix, too
        assert f"{path}`" in PROTOCOLS or f"{path.removeprefix('/tei')}`" in PROTOCOLS


@pytest.mark.parametrize("kind", KINDS)
def test_every_problem_is_documented(kind: str) -> None:
    """docs/api.md has each problem type in the table's row of its status."""
    rows = [line for line in API.splitlines() if f"`{kind}`" in line]
    assert any(f"| {int(KINDS[kind][0])} |" in row for row in rows)


def test_every_field_is_documented() -> None:
    """docs/api.md names each field of the requests and each column of the answers; likewise other pages."""
    requests = [(e.request, e.protocol) for e in ENDPOINTS if e.request is not None]
    for request, protocol in requests:
        if protocol != "native":
            assert [name for name in request.model_fields if f"`{name}`" not in PROTOCOLS] == []
    models: list[type[BaseModel]] = [request for request, protocol in requests if protocol == "native"]
    models += [TokenColumns, EncodeItem, AttentionItem, Summary, SimilarityResponse, DecodedItem]
    models += [RankedItem, RerankResponse, PredictItem, Entity, LabelScore]
    models += [ExplainItem, UnitColumns, FaithfulnessColumns]
    for model in models:
        for name, field in model.model_fields.items():
            assert f"`{field.alias or name}`" in API or name in ("index", "usage")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """A relative link or a path in backticks is a file of the repository."""
    text = document.read_text(encoding="utf-8")
    linked = [target.partition("#")[0] for target in re.findall(r"\]\(([^)#:]+)\)", text)]
    named = re.findall(r"`((?:tests|docs|benchmarks|service|model)/[\w/]+\.(?:py|md))`", text)
    missing = [t for t in linked if not (document.parent / t).exists()]
    missing += [t for t in named if not (ROOT / t).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_anchors_lead_somewhere(document: Path) -> None:
    """The part of a link after # is a heading of the page that it leads to."""
    text = document.read_text(encoding="utf-8")
    missing = []
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
        page = document.parent / target if target else document
        if anchor not in anchors(page.read_text(encoding="utf-8")):
            missing.append(f"{target}#{anchor}")
    assert missing == []


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_contributing_traces_a_request() -> None:
    """Each function and class on the way of a request is where the link leads."""
    trace = CONTRIBUTING.partition("\n## A request\n")[2].partition("\n## ")[0]
    links = re.findall(r"\[(\w+)\]\(([\w/.]+)\)", trace)
    assert len(links) > 15
    for name, path in links:
        if path.endswith((".py", ".cpp")):
            text = (ROOT / path).read_text(encoding="utf-8")
            defined = rf"^ *((async )?def|class|int) {name}\b|^{name} = "
            assert re.search(defined, text, re.MULTILINE), (name, path)


def test_the_changelog_speaks_of_this_version() -> None:
    """What is not released stands on top; each release has its date, and the last is this version."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest, *released = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert newest == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", heading) for heading in released)
    assert released[0].startswith(f"{VERSION} - ")


def test_the_benchmarks_that_comments_name_are_there() -> None:
    """A comment that gives a measurement as its reason says where it can be repeated."""
    named = {
        (name, path)
        for name, text in texts().items()
        if name.endswith((".py", ".h", ".cpp", ".md"))
        for path in re.findall(r"`(benchmarks/[\w/]+\.(?:py|md))", text)
    }
    assert len(named) > 20
    assert {(name, path) for name, path in named if not (ROOT / path).is_file()} == set()


def test_every_benchmark_is_in_the_table() -> None:
    """The README of benchmarks/ lists each program, with the file of its last result if it has one."""
    folder = ROOT / "benchmarks"
    table = (folder / "README.md").read_text(encoding="utf-8").partition("\n## Programs\n")[2]
    programs = {
        f"{path.parent.name}/{path.stem}"
        for path in folder.glob("*/*.py")
        if "parser_for(__doc__)" in path.read_text(encoding="utf-8")
    }
    row = re.compile(r"^\| (`\w+`)? ?\| (?:\[)?(\w+)(?:\]\((.+?)\))? \|", re.MULTILINE)
    room, listed = "", set()
    for first, name, link in row.findall(table):
        room = first.strip("`") or room
        listed.add(f"{room}/{name}")
        assert link == (f"{room}/{name}.md" if (folder / room / f"{name}.md").is_file() else "")
    assert listed == programs


def anchors(text: str) -> set[str]:
    """The names under which a forge shows a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def assert_alike(actual: object, shown: object, where: str) -> None:
    """Equal but for incidental members, what `…` marks, and small differences of numbers."""
    if isinstance(shown, dict):
        assert isinstance(actual, dict)
        named = shown.keys() - {OMITTED}
        assert named <= actual.keys() if OMITTED in shown else named == actual.keys(), where
        for key in named - INCIDENTAL:
            assert_alike(actual[key], shown[key], f"{where}.{key}")
    elif isinstance(shown, list):
        assert isinstance(actual, list)
        listed = [element for element in shown if element != OMITTED]
        assert len(listed) < len(actual) if OMITTED in shown else len(listed) == len(actual), where
        for i, (a, s) in enumerate(zip(actual, listed, strict=False)):
            assert_alike(a, s, f"{where}.{i}")
    elif isinstance(shown, float):
        assert isinstance(actual, float)
        assert math.isclose(actual, shown, abs_tol=TOLERANCE), where
    else:
        assert actual == shown, where
