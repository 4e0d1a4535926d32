"""Measures how well the service's sentence vectors agree with human judgements, over HTTP.

Reads an STS file (pairs of sentences that people scored from 0 to 5), posts its sentences to `/encode` of
a running service in batches, and prints Spearman's rank correlation between the cosine similarities and the
scores, with the service's description of its model. Vectors are sent as JSON, as most clients request them.

The file is tab-separated and unquoted: genre, file, year, id, score, sentence 1, sentence 2, and
columns that are ignored, as in STSbenchmark (Cer et al. 2017).

    python -m benchmarks.service.quality --data sts-dev.tsv [--url http://127.0.0.1:8000]
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for
from benchmarks.kit.workloads import read_sts

_TIMEOUT_S = 60.0


def main() -> None:
    """Measure and print."""
    arguments = parse_arguments()
    pairs = read_sts(arguments.data)
    with httpx.Client(base_url=arguments.url, timeout=_TIMEOUT_S) as client:
        about = describe(client, arguments.model)
        start = time.perf_counter()
        sentences = [s for pair in pairs for s in (pair.first, pair.second)]
        vectors = encode(client, sentences, arguments.model, arguments.batch)
        seconds = time.perf_counter() - start

    scores = [pair.score for pair in pairs]
    tables.print_facts("Machine", machine.facts(about["dtype"]))
    tables.print_facts("The service says", [(name, str(value)) for name, value in about.items()])
    tables.print_table(
        "Agreement of cosine similarity with people's scores",
        ["file", "pairs", "Spearman", "seconds"],
        [[arguments.data.name, str(len(pairs)), f"{spearman(vectors, scores):.4f}", f"{seconds:.1f}"]],
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the STS file")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="where the service runs")
    parser.add_argument("--model", help="which of its models (default: its first)")
    parser.add_argument("--batch", type=int, default=32, help="sentences per request")
    return parser.parse_args()


def describe(client: httpx.Client, model: str | None) -> dict[str, str]:
    """Ask the service what it is and which of its models answers."""
    info: dict[str, Any] = client.get("/info").raise_for_status().json()
    served = [entry for entry in info["models"] if model in (None, entry["name"])]
    if not served:
        raise SystemExit(f"The service has no model {model}: {[entry['name'] for entry in info['models']]}.")
    shown = ("name", "family", "layers", "heads", "hidden_size", "max_length", "pooling", "backend", "device")
    about = {"version": info["version"], **{key: served[0][key] for key in shown}}
    about["pooling"] = ", ".join(about["pooling"])
    return {**{key: str(value) for key, value in about.items()}, "dtype": served[0]["dtype"]}


def encode(
    client: httpx.Client, sentences: Sequence[str], model: str | None, batch: int
) -> NDArray[np.float64]:
    """Post sentences in batches; returns their unit vectors, (sentences, dimensions)."""
    vectors = []
    for start in range(0, len(sentences), batch):
        body = {"inputs": sentences[start : start + batch], "normalize": True}
        answer = client.post("/encode", json=body if model is None else {**body, "model": model})
        if answer.is_error:
            raise SystemExit(f"/encode answered {answer.status_code}: {answer.text}")
        vectors += [item["embedding"] for item in answer.json()["data"]]
    return np.array(vectors)


def spearman(vectors: NDArray[np.float64], scores: Sequence[float]) -> float:
    """Correlate the ranks of cosines with those of scores; rows 2i and 2i + 1 of `vectors` are pair i."""
    cosines = (vectors[0::2] * vectors[1::2]).sum(axis=1)
    return float(spearmanr(cosines, scores).statistic)


if __name__ == "__main__":
    main()
