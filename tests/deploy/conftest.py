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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what was measured."""
    if FACTS:
        terminalreporter.section("measured")
        for fact in FACTS:
            terminalreporter.line(fact)
