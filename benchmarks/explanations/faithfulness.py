"""Measures whether explanations are faithful: what scores lose by the units they name, and by random ones.

Starts the service on a free port of the loopback interface, fits a classifier of genres to sentences of an
STS file (`fitted_classifier.py`), and starts the service again with both models. Then it posts pairs of
sentences, whose similarity is explained, and sentences, whose label is, to `/explain` with `faithfulness`,
and prints the means over them for each method: comprehensiveness, the larger the better, and sufficiency, the
smaller the better (DeYoung et al. 2020), each beside that of units in random order, with the 95 % interval of
their difference. Inputs are drawn with a fixed seed; the classifier is fitted to sentences of other pairs.
`heads` names no units, so that neither is defined for it.

    python -m benchmarks.explanations.faithfulness --data sts-dev.tsv [--inputs 200]
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from benchmarks.explanations.fitted_classifier import Labelled, accuracy, fit_classifier
from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.servers import Headlight
from benchmarks.kit.workloads import Pair, read_sts

_START_S, _ANSWER_S = 300.0, 300.0
_BATCH = 8
_SEED = 0
_NORMAL_95 = 1.96
CLASSIFIER = "genres"
"""The name of the fitted classifier, which is that of its folder."""
METHODS: Mapping[str, Sequence[str]] = {
    "similarity": ("parts", "occlusion", "gradient"),
    "label": ("occlusion", "gradient"),
}
"""The methods that name units, by what they explain."""
REPLACEMENTS = ("mask", "remove")
"""What becomes of units that are taken out: masks in both texts of a pair make these alike."""
MEASURES = {"comprehensiveness": 1, "sufficiency": -1}
"""What is measured, and whether more of it is better or less."""


@dataclass(frozen=True)
class Measured:
    """One measure at one share of the units, of every input, and that of random units: both (inputs,)."""

    target: str
    replacement: str
    method: str
    measure: str
    share: float
    own: NDArray[np.float64]
    random: NDArray[np.float64]

    @property
    def gains(self) -> NDArray[np.float64]:
        """By how much the explanation is better than random units, (inputs,)."""
        return MEASURES[self.measure] * (self.own - self.random)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean gain."""
        margin = _NORMAL_95 * float(self.gains.std(ddof=1)) / len(self.gains) ** 0.5
        return float(self.gains.mean()) - margin, float(self.gains.mean()) + margin


def main() -> None:
    """Fit, measure and print."""
    arguments = parse_arguments()
    pairs = read_sts(arguments.data)
    chosen, others = split(pairs, arguments.inputs)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / CLASSIFIER
        server = Headlight(request_timeout_s=_ANSWER_S)
        try:
            with connect(server) as client:
                fit_classifier(client, sentences(others[: arguments.fitted]), folder)
        finally:
            server.end()
        server = Headlight(model=f"all-MiniLM-L6-v2,{folder}", request_timeout_s=_ANSWER_S)
        try:
            with connect(server) as client:
                dtype = client.get("/info").json()["models"][0]["dtype"]
                right = accuracy(client, sentences(chosen), CLASSIFIER)
                both = [[one.first, one.second] for one in chosen]
                texts = [one.first for one in chosen]
                found: list[Measured] = []
                for how in REPLACEMENTS:
                    found += measure(client, "similarity", both, how)
                    found += measure(client, "label", texts, how, model=CLASSIFIER)
        finally:
            server.end()
    facts = [*machine.facts(dtype), ("inputs", f"{len(chosen)} of each kind")]
    facts.append(("classifier", f"{100 * right:.1f} % of {2 * len(chosen)} sentences it was not fitted to"))
    tables.print_facts("Machine", facts)
    print_measured(found)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the STS file")
    parser.add_argument("--inputs", type=int, default=200, help="pairs, and sentences, that are explained")
    parser.add_argument("--fitted", type=int, default=300, help="pairs whose sentences the classifier learns")
    return parser.parse_args()


def split(pairs: Sequence[Pair], count: int) -> tuple[list[Pair], list[Pair]]:
    """Draw so many pairs; returns them and those of the others that share no sentence with them."""
    order = np.random.default_rng(_SEED).permutation(len(pairs)).tolist()
    chosen = [pairs[i] for i in sorted(order[:count])]
    known = {text for one in chosen for text in (one.first, one.second)}
    others = [pairs[i] for i in order[count:]]
    return chosen, [one for one in others if not known & {one.first, one.second}]


def sentences(pairs: Sequence[Pair]) -> Labelled:
    """Return the sentences of pairs with their genres."""
    both = [(text, one.genre) for one in pairs for text in (one.first, one.second)]
    return Labelled([text for text, _ in both], [genre for _, genre in both])


def connect(server: Headlight) -> httpx.Client:
    """Wait for the service, and return a client of it."""
    server.wait_until_ready(_START_S)
    return httpx.Client(base_url=server.url, timeout=_ANSWER_S, trust_env=False)


def measure(
    client: httpx.Client, target: str, inputs: Sequence[object], replacement: str, **options: Any
) -> list[Measured]:
    """Explain inputs by each method of a target."""
    found: list[Measured] = []
    for method in METHODS[target]:
        print(f"{target}, {replacement}: {method}", file=sys.stderr, flush=True)
        columns: list[dict[str, Any]] = []
        for start in range(0, len(inputs), _BATCH):
            body = {"inputs": inputs[start : start + _BATCH], "method": method, "faithfulness": True}
            body["replacement"] = replacement
            answer = client.post("/explain", json={**body, **options})
            if answer.is_error:
                raise SystemExit(f"/explain answered {answer.status_code}: {answer.text}")
            columns += [item["faithfulness"] for item in answer.json()["data"]]
        for name in MEASURES:
            own, random = (np.array([one[key] for one in columns]) for key in (name, f"random_{name}"))
            shares = columns[0]["shares"]
            found += [
                Measured(target, replacement, method, name, s, own[:, i], random[:, i])
                for i, s in enumerate(shares)
            ]
    return found


def print_measured(found: Sequence[Measured]) -> None:
    """Print the means, and whether each is better than that of random units."""
    rows = []
    for one in found:
        low, high = one.interval
        better = "less" if MEASURES[one.measure] < 0 else "more"
        rows.append(
            [
                f"{one.target}, {one.method}, {one.replacement}",
                f"{one.measure} at {100 * one.share:.0f} %",
                f"{one.own.mean():.3f}",
                f"{one.random.mean():.3f}",
                f"{better} by {one.gains.mean():.3f} [{low:.3f}–{high:.3f}]",
            ]
        )
    header = ["score, method, replacement", "measure", "its units", "random units", "gain: mean [95 %]"]
    tables.print_table("What scores lose", header, rows)
    checks = []
    for kind in {(one.target, one.method, one.replacement): one for one in found}:
        least = min((one for one in found if (one.target, one.method, one.replacement) == kind), key=_mean)
        name = f"{', '.join(kind)}: least gain, {least.measure} at {100 * least.share:.0f} %"
        checks.append(tables.Check(name, [_mean(least)], 0, digits=3))
    tables.print_checks(checks)


def _mean(one: Measured) -> float:
    return float(one.gains.mean())


if __name__ == "__main__":
    main()
