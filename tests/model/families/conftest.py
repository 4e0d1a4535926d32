"""Which options of a family's config are tried before each commit."""

import pytest

# What every family reads in the same way, by functions that the tests of BERT try in any case.
_ALIKE = ("one layer", "one head", "relu", "gelu", "gelu_new", "silu", "coarse norms")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave options that all families have alike to `make test-all`."""
    for item in items:
        option = item.name.partition("[")[2].rstrip("]")
        if "families" in item.path.parts and option.startswith(_ALIKE):
            item.add_marker(pytest.mark.repeated)
