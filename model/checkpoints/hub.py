"""Fetches the needed files of a hub repository, and explains in one sentence if that fails.

`huggingface_hub` reads its endpoint, token and cache from the environment: HF_ENDPOINT, HF_TOKEN, HF_HOME and
HF_HUB_OFFLINE.
"""

from pathlib import Path

from model.errors import CheckpointError
from model.files import reason


def fetch(name: str, revision: str | None, files: list[str]) -> Path:
    """Fetch the files that match a pattern, or find them in the cache; raises CheckpointError.

    `revision` is a branch, a tag or a commit; None is the newest commit of the main branch.
    """
    # Imported here: most starts do not need it, and it takes longer to import than the rest of model/.
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except Exception as error:  # its own errors, HTTP and file errors, and ValueError for a bad name
        called = name if revision is None else f"{name}@{revision}"
        raise CheckpointError(
            f"{called} is neither a folder nor a model that could be fetched from the hub: {_why(error)}."
        ) from error


def _why(error: BaseException) -> str:
    """Return what went wrong and what to do about it."""
    from huggingface_hub import constants, errors  # noqa: PLC0415

    token = "set HF_TOKEN to a token of an account"  # noqa: S105 - an instruction
    cause = error
    if isinstance(error, errors.LocalEntryNotFoundError):
        if constants.HF_HUB_OFFLINE:
            return "it is not in the cache, and HF_HUB_OFFLINE is set; set HF_HUB_OFFLINE=0, or name a folder"
        cause = error.__cause__ or error
    status = getattr(getattr(cause, "response", None), "status_code", None)
    if isinstance(cause, errors.GatedRepoError):
        told = f"it is gated; accept its terms on the hub, and {token} that has accepted them"
    elif isinstance(cause, errors.RevisionNotFoundError):
        told = "it has no such revision; name one of its branches, tags or commits after the @"
    elif isinstance(cause, errors.RepositoryNotFoundError) or status in (401, 403):
        told = f"the hub has no model of this name, or it is private; check it, or {token} that may read it"
    elif isinstance(cause, errors.HFValidationError):
        told = f"{reason(cause)}; a hub name has the form org/name or org/name@revision"
    elif status is not None:
        told = f"the hub answered {status}; try again later, or name a folder"
    else:
        told = f"{reason(cause)}; check the network, HF_ENDPOINT and HTTPS_PROXY, or name a folder"
    return told
