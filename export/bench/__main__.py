"""`headlight bench [MODEL | URL]`: measures texts per second and latencies, by length and concurrency."""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from export.bench.load import LoadError, Measured, measure
from export.bench.target import Target, started

_DESCRIPTION = """\
Measure how many texts per second the service encodes on this machine, and how long a request of one text
takes. Texts of several lengths are sent over several numbers of connections; each connection sends its next
request when the last one is answered. For a MODEL, a service is started with the settings of the
environment; a URL is the address of a running service. The measurement takes about a minute.
"""
_WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an "
    "they which one you were all her she there would their we him been has when who will no more if out so"
)
_LENGTHS, _CONNECTIONS = (8, 32, 128), (1, 8, 32)
_TEXTS = 64
_SECONDS = 5.0
_BAR = 30
_HEADER = ("words", "connections", "texts/s", "p50 ms", "p99 ms", "refused")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a service; returns 0, or 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="headlight bench", description=_DESCRIPTION)
    parser.add_argument("target", metavar="MODEL | URL", nargs="?", help="default: the embedded model")
    parser.add_argument(
        "--model", metavar="NAME", help="with a URL: which of its models to measure; default: the first"
    )
    parser.add_argument("--key", help="with a URL: the API key")
    parser.add_argument(
        "--seconds",
        type=float,
        default=_SECONDS,
        help=f"how long to measure each line; default: {_SECONDS:g}",
    )
    options = parser.parse_args(arguments)
    if not options.seconds > 0:
        parser.error("--seconds must be more than 0")
    target: str | None = options.target
    if target is not None and target.startswith("https://"):
        parser.error("TLS would be measured too: use the service's own address, such as http://HOST:8000")
    running: AbstractContextManager[Target]
    if target is not None and target.startswith("http://"):
        running = nullcontext(Target(target.rstrip("/"), options.model, options.key))
    elif options.model is not None or options.key is not None:
        parser.error("--model and --key are only for a URL; pass the model to measure without a flag")
    else:
        running = started([] if target is None else [target])
    try:
        with running as service:
            _measure_all(service, options.seconds)
    except (LoadError, OSError) as error:
        sys.stderr.write(f"bench: {str(error).rstrip('.')}.\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _measure_all(service: Target, seconds: float) -> None:
    """Measure each length and number of connections, and print a line for each, with a bar of its texts/s."""
    model = service.describe()
    sys.stdout.write(f"{model['name']}: {model['dtype']} on {model['device']}, at {service.url}\n\n")
    sys.stdout.flush()
    found: dict[tuple[int, int], Measured] = {}
    lengths = [words for words in _LENGTHS if words < int(model["max_length"])]
    if not lengths:
        raise LoadError(f"{model['name']} reads {model['max_length']} tokens, fewer than any text here has")
    for words in lengths:
        requests = [service.request(text) for text in _texts(words)]
        for connections in _CONNECTIONS:
            sys.stderr.write(f"{words} words, {connections} connections ... ")
            sys.stderr.flush()
            found[words, connections] = measure(service.address, requests, connections, seconds)
            sys.stderr.write(f"{found[words, connections].texts_per_s:.0f} texts/s\n")
    most = max(one.texts_per_s for one in found.values())
    sys.stdout.write("\n" + "  ".join(_HEADER) + "\n")
    sys.stdout.write("".join(_line(*place, one, most) for place, one in found.items()))


def _texts(words: int) -> Iterator[str]:
    """Make texts of frequent words, most of which are a token each; the same in every call."""
    chance, listed = random.Random(0), _WORDS.split()  # noqa: S311
    return (" ".join(chance.choices(listed, k=words)) for _ in range(_TEXTS))


def _line(words: int, connections: int, found: Measured, most: float) -> str:
    cells = (
        str(words),
        str(connections),
        f"{found.texts_per_s:.0f}",
        f"{found.p50_ms:.1f}",
        f"{found.p99_ms:.1f}",
        str(found.refused),
    )
    bar = "█" * round(_BAR * found.texts_per_s / most)
    aligned = "  ".join(cell.rjust(len(name)) for cell, name in zip(cells, _HEADER, strict=True))
    return f"{aligned}  {bar}\n"


if __name__ == "__main__":
    sys.exit(main())
