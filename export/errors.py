"""What ends an export, beside the errors of `model/`."""


class ExportError(Exception):
    """An export that cannot be done; the message says why and what to change, in one sentence."""
