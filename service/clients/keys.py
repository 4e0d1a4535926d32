"""API keys, compared by digest, from the settings and from a file that may change."""

import hashlib
import hmac
import logging
import threading
from pathlib import Path

from service.problems import Problem
from service.setting_values import parse_keys

log = logging.getLogger(__name__)

_SHORT = 16
# Hexadecimal digits of a key's digest: enough to distinguish keys, too few to recover one of 16 characters.
_NAME_DIGITS = 8
_MAX_FILE_BYTES = 2**20
_POLL_S = 1.0


class KeyFileError(Exception):
    """An unusable key file; the message says which, why and what to change."""


class Keys:
    """The accepted keys: those `given`, and those currently in `file`.

    Without either, no key is required. With a file, a key is required even while the file is empty. The file
    is reread every second, by its name, so that a symbolic link may be redirected; new content takes effect
    once it has been read twice unchanged, so that a half-written file does not. While the file is unreadable
    or invalid, the keys read last remain in effect.
    """

    def __init__(self, given: frozenset[str] = frozenset(), file: Path | None = None) -> None:
        """Read the file; raises KeyFileError."""
        self.required = bool(given) or file is not None
        self._given = _digests(given)
        self._file = file
        self._text = "" if file is None else _read(file)
        self._digests = self._given | self._parse(self._text)
        self._last_read = self._text
        self._fault: str | None = None
        self._closed = threading.Event()
        _warn_of_short(given)
        if self.required:
            log.info("%d API key(s) are accepted%s", len(self._digests), self._locked())

    @property
    def names(self) -> frozenset[str]:
        """The names of the accepted keys in logs and metrics."""
        return frozenset(map(_name, self._digests))

    def check(self, authorization: str | None) -> str | None:
        """Return the name of the key in this `Authorization` header, None if no key is required.

        Raises the 401 for a missing or wrong key. Takes the same time for every key, right or wrong (their
        digests are compared).
        """
        if not self.required:
            return None
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            raise _unauthorized("This service requires an API key")
        digest = _digest(key.strip())
        # Not a generator: `any` would stop at the first match.
        if not any([hmac.compare_digest(digest, known) for known in self._digests]):  # noqa: C419
            raise _unauthorized("The API key is not valid")
        return _name(digest)

    def watch(self) -> None:
        """Reread the file every second, in a separate thread, until `close`."""
        if self._file is not None:
            threading.Thread(target=self._watch, name="keys", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def reload(self) -> None:
        """Read the file, and use its keys if its content is the same as at the last read."""
        if self._file is None:
            return
        try:
            text = _read(self._file)
            stable, self._last_read = text == self._last_read, text
            if stable and text != self._text:
                self._digests = self._given | self._parse(text)
                self._text = text
                log.info("the API keys have changed: %d are accepted%s", len(self._digests), self._locked())
        except KeyFileError as error:
            if self._fault != (fault := str(error)):
                log.error("%s The keys read last remain in effect.", fault)  # noqa: TRY400
            self._fault = fault
        else:
            if self._fault is not None:
                log.info("the API key file is valid again")
            self._fault = None

    def _watch(self) -> None:
        while not self._closed.wait(_POLL_S):
            self.reload()

    def _parse(self, text: str) -> frozenset[bytes]:
        try:
            keys = parse_keys(text)
        except ValueError as error:
            raise KeyFileError(f"{self._file} cannot be used: {error}.") from None
        _warn_of_short(keys)
        return _digests(keys)

    def _locked(self) -> str:
        return "" if self._digests else ": every request is refused until there is one"


def _read(file: Path) -> str:
    try:
        if not file.is_file():
            raise KeyFileError(
                f"{file.absolute()} {'is not a file' if file.exists() else 'does not exist'}: "
                "HEADLIGHT_API_KEYS_FILE must name a file with one key per line, mounted if in a container."
            )
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KeyFileError(
            f"{file} cannot be read ({error.strerror}): make it readable to this user."
        ) from None
    if len(content) > _MAX_FILE_BYTES:
        raise KeyFileError(f"{file} is larger than {_MAX_FILE_BYTES} bytes: a key file has one key per line.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise KeyFileError(f"{file} is not UTF-8 text: a key file has one key per line.") from None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _name(digest: bytes) -> str:
    """Name a key by the first digits of its SHA-256, as `printf %s KEY | sha256sum` prints it."""
    return digest.hex()[:_NAME_DIGITS]


def _digests(keys: frozenset[str]) -> frozenset[bytes]:
    return frozenset(map(_digest, keys))


def _warn_of_short(keys: frozenset[str]) -> None:
    if short := sum(len(key) < _SHORT for key in keys):
        log.warning("%d API key(s) have fewer than %d characters and could be guessed", short, _SHORT)


def _unauthorized(what: str) -> Problem:
    return Problem(
        "unauthorized",
        f"{what}: send one in the header Authorization, as: Bearer KEY.",
        headers={"WWW-Authenticate": "Bearer"},
        members={"field": "Authorization"},
    )
