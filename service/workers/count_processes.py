"""Decides how many processes serve."""

import sys
from pathlib import Path

from model.lanes import count_cores
from service.memory_limits import memory_given
from service.settings import Settings, SettingsError

# Up to this much memory there is one process by default; each further process needs this much more.
_FIRST_BYTES, _FURTHER_BYTES = 512 * 2**20, 128 * 2**20


def count_processes(settings: Settings) -> int:
    """Return how many processes serve: the setting, or one for each core with memory for it.

    Raises SettingsError if several are set where there can be only one.

    A CUDA device has one process: each would load the weights once more, and they would compete for it.
    """
    if (obstacle := _obstacle(settings)) is not None:
        if (settings.processes or 1) > 1:
            raise SettingsError(
                f"HEADLIGHT_PROCESSES is {settings.processes}, but {obstacle}: set HEADLIGHT_PROCESSES to 1."
            )
        return 1
    if settings.processes is not None:
        return settings.processes
    memory = settings.memory_bytes or memory_given()
    with_room = 1 + max(0, memory - _FIRST_BYTES) // _FURTHER_BYTES
    return min(settings.threads or count_cores(), count_cores(), with_room)


def _obstacle(settings: Settings) -> str | None:
    """Say why there can be only one process, None if there can be several."""
    gpu = settings.device == "auto" and any(Path("/dev").glob("nvidia[0-9]*"))
    if gpu or settings.device.startswith("cuda"):
        return f"HEADLIGHT_DEVICE is {settings.device}, and a CUDA device is served by one process"
    return None if sys.platform == "linux" else "this system is not Linux"
