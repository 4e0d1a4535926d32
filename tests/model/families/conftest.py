"""Which options of a family's config are tried before each commit."""

import pytest

# What every family reads in the same way, by functions that the tests of BERT try in any case.
_ALIKE = frozenset(
    ("one layer", "one head", "one head of an odd size", "relu", "gelu", "gelu_new", "silu", "coarse norms")
)


@pytest.fixture(scope="module", autouse=True)
def _one_thread(one_thread: None) -> None:
    """For all files of families."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave options that all families have alike to `make test-all`."""
    for item in items:
        test, _, option = item.name.partition("[")
        of_a_family = "families" in item.path.parts and test.startswith("test_every_option_of_")
        option = option.rstrip("]").rpartition("-")[2]  # after the name of one family of several
        if of_a_family and option in _ALIKE:
            item.add_marker(pytest.mark.repeated)
