"""Fetches what is run of a hub repository, and says in a sentence why that cannot be.

`huggingface_hub` reads where from and as whom from the environment: HF_ENDPOINT, HF_TOKEN, HF_HOME and
HF_HUB_OFFLINE.
"""

from pathlib import Path

from model.errors import CheckpointError
from model.files import reason


def fetch(name: str, revision: str | None, files: list[str]) -> Path:
    """Fetch the files that match, or find them in the cache; raises CheckpointError.

    `revision` is a branch, a tag or a commit, None the newest of the main branch.
    """
    # Imported here: most starts never need it, and it takes longer to import than the rest of model/.
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except Exception as error:  # its own errors, those of HTTP, of files, and ValueError for a name
        called = name if revision is None else f"{name}@{revision}"
        raise CheckpointError(
            f"{called} is neither a folder nor a model that could be fetched from the hub: {_why(error)}."
        ) from error


def _why(error: BaseException) -> str:
    """Say what went wrong and what to do about it."""
    from huggingface_hub import constants, errors  # noqa: PLC0415

    token = "set HF_TOKEN to a token of an account"  # noqa: S105 - an instruction
    cause = error
    if isinstance(error, errors.LocalEntryNotFoundError):
        if constants.HF_HUB_OFFLINE:
            return "it is not in the cache, and HF_HUB_OFFLINE is set; set it to 0, or name a folder"
        cause = error.__cause__ or error
    status = getattr(getattr(cause, "response", None), "status_code", None)
    if isinstance(cause, errors.GatedRepoError):
        told = f"it is gated; accept its terms on the hub, and {token} that did"
    elif isinstance(cause, errors.RevisionNotFoundError):
        told = "it has no such revision; name one of its branches, tags or commits behind the @"
    elif isinstance(cause, errors.RepositoryNotFoundError) or status in (401, 403):
        told = f"there is none of this name, or it is private; check the name, or {token} that may read it"
    elif isinstance(cause, errors.HFValidationError):
        told = f"{reason(cause)}; a hub name is as org/name or org/name@revision"
    elif status is not None:
        told = f"the hub answered {status}; try again later, or name a folder"
    else:
        told = f"{reason(cause)}; check the network, HF_ENDPOINT and HTTPS_PROXY, or name a folder"
    return told
