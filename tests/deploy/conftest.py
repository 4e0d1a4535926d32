"""The images that tests of the deployment share, and what they measured."""

from collections.abc import Iterator

import pytest

from tests.deploy.containers import build, prepare
from tests.deploy.network import own_network
from tests.deploy.tools import FACTS


@pytest.fixture(scope="module")
def cpu_image() -> Iterator[str]:
    """The image for CPUs; while a module uses it, its tests are on a network of their own."""
    prepare()
    image = build("cpu")
    with own_network():
        yield image


SLOWEST = ("test_prometheus", "test_browser_notebook", "test_browser_pictures", "test_browser_access")
"""Files that take longest, and have few tests."""


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-xdist begin with the files as they are ordered: it would with those of the most tests.

    The one that watches the service for minutes would then run last, beside processes without work.
    """
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order them: the slowest first."""
    order = {name: at for at, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what was measured."""
    if FACTS:
        terminalreporter.section("measured")
        for fact in FACTS:
            terminalreporter.line(fact)
