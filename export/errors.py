"""The errors of an export, besides those of `model/`."""


class ExportError(Exception):
    """An export that failed; the message says why and what to change, in one sentence."""
