"""A notebook that was run, saved and closed, wherever it is opened without the kernel that ran it."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import headlight_client
from tests.explorer.support.explored import PATIENCE_MS, Explorer, shown_weights
from tests.explorer.support.jupyter import Jupyter
from tests.explorer.support.notebooks import CLIENT, KEY, TEXT, Opened, printed, save, shown
from tests.explorer.support.reading import assert_shown, maps
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

CELLS = (
    f"{CLIENT}explorer = Explorer(client, {TEXT!r}, heads=[(1, 2)], pinned=[4], height=700)\nexplorer",
    "print(explorer.widget.saved['state'])",
)
FRAME = 'iframe[title="headlight explorer"]'
WIDGETS = "application/vnd.jupyter.widget-state+json"
MOUNT = """async traits => {
  const { default: widget } = await import(document.querySelector("script[type=module]").src);
  document.getElementById("headlight-explorer").remove();
  const service = new URL(".", document.baseURI).href.replace(/\\/$/, "");
  const listeners = [];
  const asked = [];
  const answer = async ({ id, path, accept, body }) => {
    const headers = { Accept: accept, "Content-Type": "application/json" };
    const found = await fetch(service + path, { method: body ? "POST" : "GET", body, headers });
    const content = new DataView(await found.arrayBuffer());
    const told = { id, status: found.status, headers: Object.fromEntries(found.headers) };
    for (const [event, listener] of listeners) if (event === "msg:custom") listener(told, [content]);
  };
  window.kernel = {
    traits: { url: service, keyed: false, ...traits },
    silent: true,
    speak: () => { kernel.silent = false; for (const one of asked.splice(0)) void answer(one); },
    choose: (state) => {
      kernel.traits.state = state;
      for (const [event, listener] of listeners) if (event === "change:state") listener();
    },
  };
  const model = {
    get: (name) => kernel.traits[name],
    set: (name, value) => { kernel.traits[name] = value; },
    save_changes: () => undefined,
    on: (...one) => listeners.push(one),
    off: (event, listener) => {
      const at = listeners.findIndex(([name, other]) => name === event && other === listener);
      listeners.splice(at, 1);
    },
    send: (one) => void (kernel.silent ? asked.push(one) : answer(one)),
  };
  const host = document.body.appendChild(document.createElement("div"));
  kernel.close = widget.render({ model, el: host });
}"""


def taken_apart(path: Path) -> tuple[str, str]:
    """The output of the first cell without what GitHub takes out of it; and the page in its frame."""
    shown = json.loads(path.read_text(encoding="utf-8"))["cells"][0]["outputs"][0]["data"]["text/html"]
    output = "".join(shown)
    frame = re.search('<iframe srcdoc="([^"]*)".*?</iframe>', output)
    assert frame is not None
    return re.sub(r' style="[^"]*"', "", output.replace(frame[0], "")), html.unescape(frame[1])


def assert_told(told: str, expected: NDArray[np.float64]) -> None:
    """The ten largest weights of a row, as HTML without scripts has them."""
    rows = re.findall(r"<tr><td>(\d+)</td><td>[^<]+</td><td>([\d.]+)</td></tr>", told)
    order = np.argsort(-expected)[:10]
    assert [int(position) for position, _ in rows] == order.tolist()
    assert np.allclose([float(weight) for _, weight in rows], expected[order], atol=0.001)


@pytest.mark.parametrize("saves", [True, False])
def test_it_is_shown_as_it_was(
    jupyter: Jupyter, opened: Opened, guarded: Service, browser: Any, saves: bool
) -> None:
    """JupyterLab shows what was chosen last, where it saves widgets; an HTML page what was when it ran."""
    jupyter.save_widgets(saves)
    lab, path = shown(jupyter, opened, CELLS)
    assert lab.page.locator(".headlight").evaluate("one => one.parentElement.clientHeight") == 700
    lab.token(2).click()
    lab.page.keyboard.press("]")
    lab.becomes(lab.steps, [2, 2])
    lab.page.wait_for_timeout(1200)  # until what is saved is read
    lab.expect(printed(lab, 1)).to_contain_text("'pinned': [2]")
    content = save(lab, path, "'pinned': [2]")
    lab.page.goto("about:blank")
    assert KEY not in content
    assert (WIDGETS in content) == saves
    expected = maps(guarded, TEXT)
    if saves:
        jupyter.end_kernels()
        again = opened(path)
        again.token(2).wait_for()
        assert again.page.locator(".inputs").count() == 0
        assert (again.steps(), again.pinned()) == ([2, 2], [2])
        assert_shown(again.weights(), expected[2, 2, 2])
        again.page.keyboard.press("[")
        again.becomes(again.steps, [1, 2])
        assert_shown(again.weights(), expected[1, 2, 2])
        return
    jupyter.convert(path, "--to", "html")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.route(re.compile("^https?:"), lambda route: route.abort())  # what nbconvert itself loads
    page.goto(path.with_suffix(".html").as_uri())
    assert_shown(shown_weights(page.frame_locator(FRAME)), expected[1, 2, 4])
    assert page.locator(FRAME).evaluate("one => one.clientHeight") == 700
    context.close()
    told, _ = taken_apart(path)
    assert_told(told, expected[1, 2, 4])


@pytest.fixture
def client(served: Service) -> Iterator[headlight_client.Headlight]:
    """The Python client of the service."""
    with headlight_client.Headlight(served.url) as made:
        yield made


def mounted(tab: Explorer, explorer: headlight_client.Explorer) -> None:
    """A page with the widget of an explorer, whose kernel is silent until `kernel.speak()`."""
    tab.open()
    names = ("state", "saved", "height", "compact")
    state = explorer.widget.get_state()
    tab.page.evaluate(MOUNT, {name: state[name] for name in names})


def test_what_is_embedded_is_shown_until_the_kernel_answers(
    tab: Explorer, client: headlight_client.Headlight, served: Service
) -> None:
    """Without its kernel it has no field for a text; one that was busy has the page go on as usual."""
    mounted(tab, headlight_client.Explorer(client, TEXT, heads=[(1, 2)], pinned=[3]))
    expected = maps(served)
    assert_shown(tab.weights(), expected[1, 2, 3])
    assert tab.page.locator(".inputs").count() == 0
    tab.token(5).click()
    tab.becomes(lambda: tab.page.evaluate("kernel.traits.state.pinned"), [5])
    tab.page.evaluate("kernel.speak()")
    tab.page.locator(".inputs").wait_for()
    tab.becomes(tab.pinned, [5])
    assert_shown(tab.weights(), expected[1, 2, 5])


def test_python_moves_the_page(tab: Explorer, client: headlight_client.Headlight, served: Service) -> None:
    """Another text, view, head and pin at once; and what they are not is initial again."""
    explorer = headlight_client.Explorer(client, TEXT, heads=[(1, 2)], pinned=[3], embed=False)
    mounted(tab, explorer)
    tab.page.evaluate("kernel.speak()")
    tab.token(3).wait_for()
    explorer.update(text="A dog ran.", heads=[(2, 1)], pinned=[2])
    tab.page.evaluate("state => kernel.choose(state)", explorer.widget.state)
    tab.becomes(tab.pinned, [2])
    tab.becomes(tab.page.get_by_label("Text", exact=True).first.input_value, "A dog ran.")
    assert_shown(tab.weights(), maps(served, "A dog ran.")[2, 1, 2])
    explorer.state = {"text": "A dog ran.", "heads": [(0, 1)], "view": "matrix"}
    tab.page.evaluate("state => kernel.choose(state)", explorer.widget.state)
    tab.expect(tab.page.get_by_role("tab", name="Matrix")).to_have_attribute("aria-selected", "true")
    tab.becomes(tab.steps, [0, 1])
    tab.page.evaluate("kernel.close(); kernel.choose({})")
    assert tab.page.locator(".headlight").count() == 0


def test_a_compact_one_is_its_view_alone(tab: Explorer, client: headlight_client.Headlight) -> None:
    """As high as was asked; keys still change the head, and a frame has the same."""
    explorer = headlight_client.Explorer(client, TEXT, heads=[(1, 2)], pinned=[3], height=300, compact=True)
    mounted(tab, explorer)
    tab.token(3).wait_for()
    around = ", ".join(f".{name}" for name in ("header", "inputs", "controls", "tabs", "footer"))
    seen = "all => all.filter((one) => one.offsetHeight > 0).length"
    assert tab.page.locator(around).evaluate_all(seen) == 0
    host = tab.page.locator(".headlight").locator("..")
    assert host.evaluate("one => [one.clientHeight, one.scrollHeight > 300]") == [300, True]
    tab.token(3).press("]")
    tab.becomes(lambda: tab.page.evaluate("kernel.traits.state.heads"), [[2, 2]])
    tab.page.goto("about:blank")  # where no policy forbids frames
    tab.page.set_content(explorer._repr_mimebundle_()[0]["text/html"])
    frame = tab.page.frame_locator(FRAME)
    frame.locator(".tokens").first.wait_for()
    assert frame.locator(around).evaluate_all(seen) == 0


def test_maps_beyond_the_bound_are_left_out(
    tab: Explorer, client: headlight_client.Headlight, monkeypatch: pytest.MonkeyPatch, served: Service
) -> None:
    """The layer of the chosen head stays; of another one the page says that it is not there."""
    monkeypatch.setattr("headlight_client.notebook.held.LARGEST_SAVED", 4000)
    mounted(tab, headlight_client.Explorer(client, TEXT, heads=[(1, 2)], pinned=[3]))
    assert_shown(tab.weights(), maps(served)[1, 2, 3])
    tab.page.keyboard.press("]")
    tab.page.get_by_text("This file holds the maps of layer 1.").first.wait_for()
