"""Builds the kernels of `model/pytorch/kernels/` into the package, where there is a C++ compiler."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LIBRARY = "model/pytorch/kernels/libheadlight.so"


class Kernels(BuildHookInterface):  # type: ignore[type-arg]
    """Run by hatchling before it makes a wheel, also of an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile, or say in one sentence why not."""
        sys.path.insert(0, self.root)
        from model.pytorch.kernels.build import NotBuilt, build, find_compiler, find_machine  # noqa: PLC0415

        try:
            build(Path(self.root) / _LIBRARY)
            machine = find_machine(find_compiler())
        except NotBuilt as error:
            self.app.display_warning(f"headlight runs without its own kernels, on PyTorch's: {error}")
            return
        build_data["artifacts"].append(_LIBRARY)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{machine}"
