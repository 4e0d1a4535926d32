"""API keys, compared by digest, from the settings and from a file that may change."""

import hashlib
import hmac
import logging
import threading
from pathlib import Path

from service.problems import Problem
from service.setting_values import parse_keys
from service.sharing.published import Published

log = logging.getLogger(__name__)

_SHORT = 16
# Hexadecimal digits of a key's digest: enough to distinguish keys, too few to recover one of 16 characters.
_NAME_DIGITS = 8
_MAX_FILE_BYTES = 2**20
# Each key takes at least one byte, and another one separates it from the next.
_MOST_KEYS = (_MAX_FILE_BYTES + 1) // 2
_DIGEST_BYTES = hashlib.sha256().digest_size
# What may surround a field's value (OWS, RFC 9110 §5.6.3). `str.strip` also removes U+0085 and U+00A0.
_WHITESPACE = " \t"

REREAD_S = 1.0
"""How often the key file is read, in seconds."""


class KeyFileError(Exception):
    """An unusable key file; the message says which, why and what to change."""


class Keys:
    """The accepted keys: those `given`, and those of the key file, whose digests are `published`.

    Without either, no key is required. With a file, a key is required even while the file is empty.
    """

    def __init__(self, given: frozenset[str] = frozenset(), published: Published | None = None) -> None:
        self.required = bool(given) or published is not None
        self._given = self._accepted = _digests(given)
        self._published = published
        self._edition = 0

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
        digest = _digest(key.strip(_WHITESPACE))
        # Not a generator: `any` would stop at the first match.
        if not any([hmac.compare_digest(digest, known) for known in self._digests]):  # noqa: C419
            raise _unauthorized("The API key is not valid")
        return _name(digest)

    def log(self, sentence: str) -> None:
        """Log a sentence with a placeholder for the number of keys, as a warning if there are none."""
        number = len(self._digests)
        if number:
            log.info(sentence, number)
        else:
            log.warning(sentence + "; all requests are refused until a key is added", number)

    @property
    def _digests(self) -> frozenset[bytes]:
        if self._published is not None and self._edition != self._published.edition:
            self._edition, content = self._published.read()
            starts = range(0, len(content), _DIGEST_BYTES)
            self._accepted = self._given.union(content[start : start + _DIGEST_BYTES] for start in starts)
        return self._accepted


class KeyFile:
    """Reads a file of keys, and publishes their digests for `Keys`, also in processes forked later.

    The file is reread every second, by its name, so that a symbolic link may be redirected; new content takes
    effect once it has been read twice unchanged, so that a half-written file does not. While the file is
    unreadable or invalid, the keys read last remain in effect. Only one process of a service reads it: all
    apply the same keys at the same moment.
    """

    def __init__(self, path: Path, given: frozenset[str] = frozenset()) -> None:
        """Read the file; raises KeyFileError. The `given` keys are accepted beside those of the file."""
        self.published = Published(_MOST_KEYS * _DIGEST_BYTES)
        self._path = path
        self._accepted = Keys(given, self.published)
        self._text = self._last_read = _read(path)
        self._fault: str | None = None
        self._closed = threading.Event()
        self._publish(self._text)

    def watch(self) -> None:
        """Reread the file every second, in a separate thread, until `close`."""
        threading.Thread(target=self._watch, name="keys", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def reload(self) -> None:
        """Read the file, and use its keys if its content is the same as at the last read."""
        try:
            text = _read(self._path)
            stable, self._last_read = text == self._last_read, text
            if stable and text != self._text:
                self._publish(text)
                self._text = text
                self._accepted.log("the API keys have changed: %d are accepted")
        except KeyFileError as error:
            if self._fault != (fault := str(error)):
                log.error("%s The service keeps using the keys it read last.", fault)  # noqa: TRY400
            self._fault = fault
        else:
            if self._fault is not None:
                log.info("the API key file is valid again")
            self._fault = None

    def _watch(self) -> None:
        while not self._closed.wait(REREAD_S):
            self.reload()

    def _publish(self, text: str) -> None:
        try:
            keys = parse_keys(text)
        except ValueError as error:
            raise KeyFileError(f"{self._path} cannot be used: {error}.") from None
        _warn_of_short(keys)
        self.published.publish(b"".join(_digests(keys)))


def open_key_file(given: frozenset[str], path: Path | None) -> KeyFile | None:
    """Read the key file, if there is one, and log how many keys are accepted; raises KeyFileError."""
    file = None if path is None else KeyFile(path, given)
    _warn_of_short(given)
    keys = Keys(given, None if file is None else file.published)
    if keys.required:
        keys.log("%d API key(s) are accepted")
    return file


def _read(file: Path) -> str:
    try:
        if not file.is_file():
            raise KeyFileError(
                f"{file.absolute()} {'is not a file' if file.exists() else 'does not exist'}: "
                "HEADLIGHT_API_KEYS_FILE must name a file with one key per line. In a container, mount it."
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
