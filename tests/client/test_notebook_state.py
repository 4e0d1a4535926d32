"""What a person chose in the widget, what Python chooses there, and what is saved with a notebook."""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headlight_client import Explorer, Headlight
from headlight_client.notebook.fields import FIELDS, VIEWS, checked
from headlight_client.notebook.widget import _ASKED, _SAVED_ROUTES
from service.explorer.page import FOLDER
from tests.client.test_notebook import numbers
from tests.support.serving import ROOT, Service

TEXT = "The cat sat on the mat."
SOURCES = ROOT / "explorer" / "src"


@pytest.fixture
def client(service: Service) -> Iterator[Headlight]:
    """A client of the service, with a key that it does not need."""
    with Headlight(service.url, api_key="secret-key") as made:
        yield made


def test_python_knows_the_fields_of_links() -> None:
    """Their names in the same order, and every word that a field has in TypeScript."""
    source = (SOURCES / "state" / "fields.ts").read_text(encoding="utf-8")
    table = source.partition("export const FIELDS = {")[2].partition("} as const")[0]
    fields = dict(re.findall(r"^  (\w+): (.+),$", table, flags=re.MULTILINE))
    assert list(fields) == list(FIELDS)
    lists = dict(re.findall(r"export const (\w+) = \[([^\]]*)\]", source))
    for name, parsed in fields.items():
        if (found := re.match(r"oneOf\((\w+)", parsed)) is None:
            continue
        words = re.findall(r'"([^"]+)"', lists[found[1]])
        for word in words:
            assert checked({name: word}) == {name: word}
        with pytest.raises(ValueError, match=f"pass one of {', '.join(words)}"):
            checked({name: "nothing like it"})


def test_python_knows_the_views() -> None:
    """Those of the tabs, in their order."""
    sources = [(SOURCES / "views" / name).read_text(encoding="utf-8") for name in ("single.ts", "index.ts")]
    assert tuple(re.findall(r'\{ name: "(\w+)"', "".join(sources))) == VIEWS


def test_python_knows_the_routes() -> None:
    """Those that the page asks; what it asks in JSON is saved, but for `/info`, which the maps have."""
    sources = "".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.ts*"))
    questions = set(re.findall(r'path: "(/\w+)"', sources))
    assert set(_ASKED) == questions | set(re.findall(r'wireOf\("(/\w+)"', sources))
    assert set(_SAVED_ROUTES) == questions - {"/info"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"veiw": "heads"}, "no field 'veiw': did you mean view"),
        ({"zzz": 1}, "no field 'zzz': it has text, pair"),
        ({"view": "nothing"}, "view is 'nothing': pass one of text, heads"),
        ({"heads": [3]}, r"heads is \[3\]: pass a list of at most 2,000 pairs \(layer, head\)"),
        ({"heads": [(0, -1)]}, "each from 0 to 99,999"),
        ({"pinned": 3}, "pinned is 3: pass a list"),
        ({"pinned": ["a"]}, "positions of tokens"),
        ({"mass": 2}, "mass is 2: pass a number from 0 to 1"),
        ({"mass": float("nan")}, "pass a finite number"),
        ({"edges": 2.5}, "edges is 2.5: pass a whole number from 1 to 40"),
        ({"edges": True}, "edges is True"),
        ({"model": 3}, "model is 3: pass a string of at most 500 characters"),
        ({"lens": [1]}, r"lens is \[1\]: pass a pair \(hidden state, position\), each from 0 to 99,999"),
        ({"lens": [0, -1]}, "pass a pair"),
        ({"text": "\ud800"}, "without half characters"),
    ],
)
def test_what_no_link_has_is_refused(client: Headlight, fields: dict[str, Any], message: str) -> None:
    """At once, wherever it is given: in a sentence with the field, the value and what it may be."""
    explorer = Explorer(client, TEXT, embed=False)
    with pytest.raises(ValueError, match=message):
        checked(fields)
    with pytest.raises(ValueError, match=message):
        explorer.update(**fields)
    with pytest.raises(ValueError, match=message):
        explorer.widget.state = fields
    assert explorer.state == {"text": TEXT}
    if "text" not in fields and "model" not in fields:
        with pytest.raises(ValueError, match=message):
            Explorer(client, TEXT, **fields)


def test_state_is_what_is_chosen_now(client: Headlight) -> None:
    """By the page or by Python, before there is a widget and after; observers hear of both."""
    explorer = Explorer(client, TEXT, pinned=[2], embed=False)
    explorer.update(heads=[(np.int64(1), 2)])
    assert explorer.state == {"text": TEXT, "pinned": [2], "heads": [[1, 2]]}
    heard: list[Any] = []
    explorer.observe(lambda change: heard.append(change["new"]))
    explorer.widget.set_state({"state": {"text": TEXT, "view": "heads"}})  # as the page sends it
    assert explorer.state == {"text": TEXT, "view": "heads"}
    explorer.update(view=None, pinned=(3,))
    assert explorer.state == {"text": TEXT, "pinned": [3]}
    explorer.update(text="A dog ran.")
    assert explorer.state == {"text": "A dog ran."}
    explorer.state = {"text": TEXT, "scale": "log"}
    assert explorer.widget.state == {"text": TEXT, "scale": "log"} == heard[-1]
    assert len(heard) == 4
    assert json.loads(json.dumps(heard)) == heard


@pytest.mark.parametrize("height", [99, 10_001, 3.5, "300", True])
def test_heights_are_pixels(client: Headlight, height: Any) -> None:
    """Of a size that a screen may have."""
    with pytest.raises(ValueError, match="pass whole pixels from 100 to 10,000, or None"):
        Explorer(client, TEXT, height=height)


def test_embed_is_a_choice_of_three(client: Headlight) -> None:
    """On for one text and off for a pair, unless it is said."""
    pair = (TEXT, "A dog ran.")
    cases: list[tuple[tuple[str, ...], bool | None, bool]] = [
        ((TEXT,), None, True),
        (pair, None, False),
        (pair, True, True),
        ((TEXT,), False, False),
    ]
    for texts, embed, held in cases:
        explorer = Explorer(client, *texts, embed=embed)
        assert (explorer.widget.saved is not None) == held
        assert ("text/html" in explorer._repr_mimebundle_()[0]) == held
    with pytest.raises(ValueError, match="embed is 'yes': pass True, False, or None"):
        Explorer(client, TEXT, embed="yes")  # type: ignore[arg-type]


def test_what_is_saved_follows_what_is_shown(client: Headlight) -> None:
    """All layers of a short text, as the API has them; other maps once others are chosen; no key."""
    explorer = Explorer(client, TEXT)
    for fields in ({}, {"weights": "score", "special": "drop"}, {"ablated": [(0, 1), (2, 3)]}):
        explorer.state = {"text": TEXT, **fields}
        saved = explorer.widget.saved
        cut: Any = [{"kind": "heads", "layer": 0, "heads": [1]}, {"kind": "heads", "layer": 2, "heads": [3]}]
        asked: Any = {
            "weights": fields.get("weights"),
            "special_tokens": fields.get("special"),
            "interventions": cut if "ablated" in fields else None,
        }
        (item,) = client.attention(TEXT, dtype="float16", **asked)
        assert item.attention is not None
        held = [numbers(one["attention"]) for one in saved["layers"]]
        assert np.array_equal(np.concatenate(held), item.attention)
        assert saved["state"] == {**explorer.state, "model": saved["info"]["models"][0]["name"]}
    state = explorer.widget.get_state()
    assert "secret-key" not in str(state)
    assert state["_esm"] == (FOLDER / "explorer.js").read_text(encoding="utf-8")


def test_a_rollout_is_saved_by_its_layers(client: Headlight) -> None:
    """Each map is of all layers up to one, and of no layer alone."""
    explorer = Explorer(client, TEXT, weights="rollout")
    explorer.state = {**explorer.state, "pinned": [1]}
    saved = explorer.widget.saved
    assert [one["layers"] for one in saved["layers"]] == [[layer] for layer in range(6)]
    (item,) = client.attention(TEXT, aggregate="rollout", layers=[3], dtype="float16")
    assert item.attention is not None
    assert np.array_equal(numbers(saved["layers"][3]["attention"]), item.attention)


@pytest.mark.parametrize("bound", [240_000, 30_000, 1])
def test_what_is_saved_is_bounded(client: Headlight, monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    """Layers of the chosen heads, the current one first, as many as fit; else statistics, and no maps."""
    monkeypatch.setattr("headlight_client.notebook.held.LARGEST_SAVED", bound)
    text = " ".join(["The cat sat on the mat."] * 4)
    explorer = Explorer(client, text, heads=[(4, 0), (2, 1), (5, 3)])
    saved = explorer.widget.saved
    layers = [one["layers"][0] for one in saved["layers"]]
    thumbnails = saved["overview"]["thumbnails"]
    packed = [one["attention"] for one in saved["layers"]] + ([thumbnails] if thumbnails else [])
    assert sum(len(one["float16"]) for one in packed) <= bound
    assert layers == {240_000: [2, 5], 30_000: [5], 1: []}[bound]
    assert len(saved["overview"]["summary"]["entropy"]["values"]) == 6 * 12
    with monkeypatch.context() as patched:
        patched.setattr(client, "attention", None)  # what does not fit is not read again for a pin
        explorer.state = {**explorer.state, "pinned": [1]}
    assert explorer.widget.saved["layers"] == saved["layers"]


def test_answers_are_saved_beside_the_maps(client: Headlight, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page was told of other routes, by its question, until another text is chosen."""
    explorer = Explorer(client, TEXT)
    monkeypatch.setattr(type(explorer.widget), "send", lambda *_: None)
    body = json.dumps({"texts": [TEXT, "a dog"]})
    explorer.widget._handle_custom_msg({"id": 1, "path": "/similarity", "accept": None, "body": body}, [])
    (answer,) = explorer.widget.saved["answers"].items()
    assert answer[0] == f"/similarity {body}"
    expected = client.similarity([TEXT, "a dog"]).similarities
    assert np.allclose(answer[1]["similarities"], expected, atol=1e-6)
    explorer.state = {"text": "Other words."}
    assert explorer.widget.saved["answers"] == {}
