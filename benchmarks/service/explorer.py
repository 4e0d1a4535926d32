"""Measures the explorer's page in Chromium, with a service of BERT-base's size and random weights.

What a person waits for is measured in the page, from the key or click to the frame that shows the answer;
what scripts take, and memory, as the browser counts them. Chromium and Playwright are those of
`tests/deploy/install.sh browser`.

    python -m benchmarks.service.explorer [--layers 12] [--rounds 5] [--tokens 512]
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from tests.explorer.support.explored import Explorer, chromium
from tests.references.families import write_model
from tests.support.serving import Service, serve

BASE: dict[str, Any] = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
HEADS, POSITIONS = 12, 512
WORDS = ("the", "man", "boy", "beats", "hello", "world")
HOVERS = 100
WINDOW = {"width": 1440, "height": 900}
TIMED = """() => {{
  window.done = new Promise(resolve => addEventListener("{event}", ({{ timeStamp }}) => {{
    const look = () => {{
      if ({ready}) requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - timeStamp)));
      else requestAnimationFrame(look);
    }};
    look();
  }}, {{ capture: true, once: true }}));
}}"""
DRAWN = (
    '[...document.querySelectorAll(".cell canvas")].filter(one => one.width > 1 && one.width !== 300).length'
)


def main() -> None:
    """Measure and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=POSITIONS)
    arguments = parser.parse_args()
    tables.print_facts("Machine", machine.facts("float32"))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "base"
        write_base(folder, arguments.layers)
        with serve(model=folder, max_batch_tokens=8192) as service, chromium() as browser:
            tables.print_checks(measure(browser, service, arguments))


def write_base(folder: Path, layers: int) -> None:
    """Save the model; its tokenizer reads as many tokens as it has positions."""
    write_model(folder, "Bert", **BASE, num_hidden_layers=layers, max_position_embeddings=POSITIONS)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) | {"model_max_length": POSITIONS}
    file.write_text(json.dumps(settings), encoding="utf-8")


def measure(browser: Any, service: Service, arguments: argparse.Namespace) -> list[tables.Check]:
    """Measure everything, each in as many rounds; memory once, at the end."""
    rounds = range(arguments.rounds)
    short = [text_of(15, seed) for seed in rounds]
    first_paints = [first_paint(browser, service) for _ in rounds]
    first_maps = [first_map(browser, service, arguments.layers, text) for text in short]
    tab = Explorer(browser.new_context(viewport=WINDOW).new_page(), service.url)
    heads = [[0, head] for head in range(HEADS)]
    tab.open(text=text_of(arguments.tokens, 99), heads=heads)
    hovers = [hover(tab) for _ in rounds]
    thumbnails = [all_heads(tab, arguments.layers) for _ in rounds]
    opened = [open_head(tab, 1 + i % (HEADS - 1)) for i in rounds]
    explore(tab, arguments.layers)
    memory = renderer_memory(browser)
    tab.page.context.new_cdp_session(tab.page).send("HeapProfiler.collectGarbage")
    tab.page.wait_for_timeout(2000)
    retained = renderer_memory(browser)
    size = f"{arguments.tokens} tokens"

    def at_most(name: str, values: list[float], bound: float) -> tables.Check:
        return tables.Check(name, values, bound, at_most=True, digits=1)

    return [
        at_most("first paint, ms", first_paints, 300),
        at_most("first map of 15 tokens after Enter, ms", first_maps, 500),
        at_most(f"script of a hover, {size} × {HEADS} heads, p95, ms", hovers, 8),
        at_most(f"open a head of a loaded layer, {size}, ms", opened, 250),
        at_most(f"{arguments.layers * HEADS} thumbnails, {size}, ms", thumbnails, 400),
        at_most(f"memory of the page, {size}, {arguments.layers} layers, MB", [memory], 400),
        at_most("the same after the browser collected garbage, MB", [retained], 400),
    ]


def text_of(tokens: int, seed: int) -> str:
    """Make a text of words that are one token each, for an input of this many tokens."""
    return " ".join(random.Random(seed).choices(WORDS, k=tokens - 2))  # noqa: S311


def first_paint(browser: Any, service: Service) -> float:
    """Open the page in a new profile, as on a first visit: ms to the first contentful paint."""
    context = browser.new_context(viewport=WINDOW)
    tab = Explorer(context.new_page(), service.url)
    tab.open()
    script = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    ms = float(tab.page.evaluate(script))
    context.close()
    return ms


def first_map(browser: Any, service: Service, layers: int, text: str) -> float:
    """Enter a text on the opened page: ms from Enter to the frame with the maps of all heads."""
    context = browser.new_context(viewport=WINDOW)
    tab = Explorer(context.new_page(), service.url)
    tab.open(view="heads")
    tab.page.get_by_role("textbox", name="Text", exact=True).fill(text)
    ms = timed(tab, "keydown", f"{DRAWN} === {layers * HEADS}", lambda: tab.page.keyboard.press("Enter"))
    context.close()
    return ms


def timed(tab: Explorer, event: str, ready: str, act: Callable[[], object]) -> float:
    """Act, which causes the event: ms from it to the frame in which the expression `ready` is true."""
    tab.page.evaluate(TIMED.format(event=event, ready=ready))
    act()
    return float(tab.page.evaluate("window.done"))


def hover(tab: Explorer) -> float:
    """Point at tokens, one after the other: the 95th percentile of script ms, over all chosen heads."""
    tab.tab("Text")
    session = tab.page.context.new_cdp_session(tab.page)
    session.send("Performance.enable")
    boxes = tab.page.locator(".token").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect())"
        ".filter(box => box.top > 0 && box.bottom < innerHeight)"
        ".map(box => [box.x + box.width / 2, box.y + box.height / 2])"
    )
    spent = []
    for x, y in random.Random(0).choices(boxes, k=HOVERS):  # noqa: S311
        before = script_ms(session)
        tab.page.mouse.move(x, y)
        tab.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        spent.append(script_ms(session) - before)
    session.detach()
    return float(np.quantile(spent, 0.95))


def script_ms(session: Any) -> float:
    """Milliseconds that the page's scripts have run so far."""
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return 1e3 * float(metrics["ScriptDuration"])


def all_heads(tab: Explorer, layers: int) -> float:
    """Open the grid: ms from the click to the frame with every thumbnail."""
    tab.tab("Text")
    ready = f"{DRAWN} === {layers * HEADS}"
    return timed(tab, "click", ready, lambda: tab.page.get_by_role("tab", name="All heads").click())


def open_head(tab: Explorer, head: int) -> float:
    """Open a head of the layer that is there: ms from the click to the frame with its map in full size."""
    tab.tab("All heads")
    tab.page.locator('[data-head="0,0"]').dblclick()
    tab.expect(tab.page.locator(".head-panel h2")).to_have_text("L0 H0")
    tab.settle()
    ready = (
        f'document.querySelector(".head-panel h2").textContent === "L0 H{head}" '
        '&& document.querySelector(".head-panel canvas").width > 64'
    )
    return timed(tab, "click", ready, tab.page.locator(f'[data-head="0,{head}"]').click)


def explore(tab: Explorer, layers: int) -> None:
    """Look at every layer in the text, and open every view."""
    tab.tab("Text")
    tab.token(1).click()
    for layer in range(layers):
        tab.expect(tab.page.locator(".step output").first).to_have_text(str(layer))
        tab.page.locator(".row-table tbody tr").first.wait_for()
        tab.settle()
        tab.page.keyboard.press("]")
    for name in tab.tabs():
        tab.tab(name)


def renderer_memory(browser: Any) -> float:
    """MB of the process that shows the page, without the files that it maps."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    pids = [one["id"] for one in processes if one["type"] == "renderer"]
    return machine.MB_PER_MIB * max(machine.memory_mib("RssAnon", pid) for pid in pids)


if __name__ == "__main__":
    main()
