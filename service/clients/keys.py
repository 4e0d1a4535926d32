"""Who may ask: API keys, known by their digests, from the settings and from a file that may change."""

import hashlib
import hmac
import logging
import threading
from pathlib import Path

from starlette.requests import Request

from service.problems import Problem
from service.setting_values import parse_keys

log = logging.getLogger(__name__)

_SHORT = 16
# Hexadecimal digits of its digest: enough to tell some keys apart, too few to find one of 16 characters.
_NAME_DIGITS = 8
_MAX_FILE_BYTES = 2**20
_POLL_S = 1.0


class KeyFileError(Exception):
    """A file of keys that cannot be used; the message says which, why and what to change."""


class Keys:
    """The keys that open the service: those `given`, and those in `file` as it is now.

    Without either, everybody may ask. With a file, nobody may whose key is in neither, also while the file is
    empty. The file is read again every second, by its name, so that a link may be turned to another file;
    what was read twice alike counts, so that a file half written does not. While it cannot be read, or has a
    fault, the keys that were read last go on to hold.
    """

    def __init__(self, given: frozenset[str] = frozenset(), file: Path | None = None) -> None:
        """Read the file; raises KeyFileError."""
        self.required = bool(given) or file is not None
        self._given = _digests(given)
        self._file = file
        self._text = "" if file is None else _read(file)
        self._digests = self._given | self._parse(self._text)
        self._seen = self._text
        self._fault: str | None = None
        self._closed = threading.Event()
        _warn_of_short(given)
        if self.required:
            log.info("%d API key(s) open this service%s", len(self._digests), self._locked())

    @property
    def names(self) -> frozenset[str]:
        """What the keys that open the service are called in logs and metrics, as they are now."""
        return frozenset(map(_name, self._digests))

    def check(self, authorization: str | None) -> str | None:
        """Raise the 401 that fits, or return the name of the key by which this `Authorization` header opens.

        Where no key is required, the name is None.

        Takes the same time whichever key it is, and for keys that are wrong (their digests are compared).
        """
        if not self.required:
            return None
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            raise _unauthorized("This service asks for an API key")
        digest = _digest(key.strip())
        # No generator: it would stop at the first that fits.
        if not any([hmac.compare_digest(digest, known) for known in self._digests]):  # noqa: C419
            raise _unauthorized("The API key is none of those that open this service")
        return _name(digest)

    def watch(self) -> None:
        """Read the file again every second, in a thread of its own, until `close`."""
        if self._file is not None:
            threading.Thread(target=self._watch, name="keys", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def reload(self) -> None:
        """Read the file once more, and take its keys when it is as it was the last time."""
        if self._file is None:
            return
        try:
            text = _read(self._file)
            stable, self._seen = text == self._seen, text
            if stable and text != self._text:
                self._digests = self._given | self._parse(text)
                self._text = text
                log.info(
                    "the API keys have changed: %d open this service%s", len(self._digests), self._locked()
                )
        except KeyFileError as error:
            if self._fault != (fault := str(error)):
                log.error("%s The keys that were read last go on to hold.", fault)  # noqa: TRY400
            self._fault = fault
        else:
            if self._fault is not None:
                log.info("the file of API keys can be used again")
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
        return "" if self._digests else ": nobody may ask until there is one"


def sent_authorization(request: Request) -> str | None:
    """Read the header `Authorization`; two of them are none that fits, whichever one a proxy looked at."""
    return ", ".join(request.headers.getlist("authorization")) or None


def _read(file: Path) -> str:
    try:
        if not file.is_file():
            raise KeyFileError(
                f"{file.absolute()} {'is not a file' if file.exists() else 'does not exist'}: "
                "HEADLIGHT_API_KEYS_FILE names a file with a key per line; in a container it must be mounted."
            )
        with file.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"{file} cannot be read ({error.strerror}): let this user read it.") from None
    if len(content) > _MAX_FILE_BYTES:
        raise KeyFileError(f"{file} has more than {_MAX_FILE_BYTES} bytes: a file of keys has one per line.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise KeyFileError(f"{file} is not text in UTF-8: a file of keys has one per line.") from None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _name(digest: bytes) -> str:
    """Call a key by the beginning of its SHA-256, as `printf %s KEY | sha256sum` prints it."""
    return digest.hex()[:_NAME_DIGITS]


def _digests(keys: frozenset[str]) -> frozenset[bytes]:
    return frozenset(map(_digest, keys))


def _warn_of_short(keys: frozenset[str]) -> None:
    if short := sum(len(key) < _SHORT for key in keys):
        log.warning("%d API key(s) have fewer than %d characters and could be guessed", short, _SHORT)


def _unauthorized(what: str) -> Problem:
    return Problem(
        "unauthorized",
        f"{what}: send one in the header Authorization, as Bearer and the key.",
        headers={"WWW-Authenticate": "Bearer"},
        members={"field": "Authorization"},
    )
