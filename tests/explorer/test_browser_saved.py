"""What a widget embeds, shown where its kernel is silent; and its page moved from Python."""

from collections.abc import Iterator

import pytest

import headlight_client
from tests.explorer.support.explored import Explorer
from tests.explorer.support.reading import assert_shown, maps
from tests.support.serving import Service

pytestmark = pytest.mark.deploy

TEXT = "The cat sat on the mat."
FRAME = 'iframe[title="headlight explorer"]'
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
    tab.token(3).press("]")
    tab.page.get_by_text("This file holds the maps of layer 1.").first.wait_for()
