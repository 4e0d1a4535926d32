"""A browser, a service with a model whose weights are known, and a tab that shows it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.explorer.support.explored import Explorer, chromium
from tests.explorer.support.notebooks import guarded, jupyter, opened
from tests.explorer.support.planted import HEADS, LAYERS, WORDS, write_planted
from tests.references.checkpoints import write_bert
from tests.support.serving import Service, serve

__all__ = ["guarded", "jupyter", "opened"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model."""
    folder = tmp_path_factory.mktemp("models") / "planted"
    write_planted(folder)
    return folder


@pytest.fixture(scope="session")
def served(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of it, and of a random one of the same sizes, without a key."""
    other = tmp_path_factory.mktemp("models") / "other"
    sizes: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    write_bert(other, seed=5, words=WORDS, **sizes)
    with serve(model=f"planted={planted},other={other}") as started:
        yield started


@pytest.fixture(scope="session")
def profile(browser: Any) -> Iterator[Any]:
    """One profile for tests that need none of their own: making one takes longer than loading the page.

    What the explorer keeps belongs to a tab; what a test sets besides, the fixture below takes back.
    """
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.new_page()  # with its last tab a profile would close what renders the next
    yield context
    context.close()


@pytest.fixture
def tab(profile: Any, served: Service) -> Iterator[Explorer]:
    """A new tab, about which the browser has nothing to report at the end of the test."""
    explorer = Explorer(profile.new_page(), served.url)
    yield explorer
    try:
        found = explorer.found()
    finally:
        profile.set_offline(False)
        profile.clear_permissions()
        for page in profile.pages[1:]:
            page.close()
    assert found == []
