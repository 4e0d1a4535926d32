"""What `throughput.py` compares headlight with: how each is started, loaded, and held to a target."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.kit.observed import with_idle_share
from benchmarks.kit.servers import Bare, Headlight, Process, Server
from benchmarks.kit.workloads import NAMES, Workload
from benchmarks.kit.wrk import RAMP_S, Load, drive, good
from benchmarks.peers import infinity
from model.checkpoints.source import EMBEDDED, resolve

HEADLIGHT = "headlight"
OF_PLAIN = {"mixed": 1.25, "long": 1.25}
"""The targets for requests per second / its own without native kernels."""
OF_BARE_MODEL = {"mixed": 0.8}
"""The target for tokens per second / the bare model's."""
OF_INFINITY = {"single": 5.0, "mixed": 5.0, "long": 3.0}
"""The targets for requests per second / infinity-emb's, with PyTorch."""
INT8_OF_INFINITY = {"single": 7.0, "mixed": 6.5, "long": 3.7, "lone": 8.0}
"""The same in eight bits, with infinity-emb in bfloat16: its own eight bits change vectors (cosine 0.92)."""
INT8_OF_GRAPH = dict.fromkeys(NAMES, 1.5)
"""The same in eight bits, with infinity-emb on a graph in eight bits."""
GRAPH_OF_INFINITY = {"single": 2.0, "mixed": 2.0, "long": 2.0}
"""The same as with PyTorch, with a graph."""
OF_RUNTIME = {
    "onnxruntime": {"single": 1.7, "mixed": 5.5, "long": 2.0, "lone": 0.95, "others": 1.1},
    "openvino": {"single": 1.15, "mixed": 2.5, "long": 1.05, "lone": 0.8, "others": 1.1},
}
"""The targets for requests per second / the bare runtime's, with bfloat16 instructions."""
INT8_OF_RUNTIME = {
    "onnxruntime": {"single": 1.1, "mixed": 3.3, "long": 1.4, "lone": 0.85, "others": 1.0},
    "openvino": {"single": 1.1, "mixed": 2.7, "long": 1.05, "lone": 0.85, "others": 1.0},
}
"""The same where both run in eight bits."""

_START_S = 180.0
_ANSWER_S = 60.0
_END_S = 0.3
"""Left out at the end of a load when tokens are counted: the load must not be over before."""
_SAME, _SAME_INT8 = 0.98, 0.97
"""The least cosine between vectors of the same weights."""
_NAN = float("nan")
_BATCH = 8
"""The most texts of a batch of a bare runtime."""


@dataclass(frozen=True)
class Turn:
    """The result of one turn; NaN where something is not measured. `idle` is a share of all cores."""

    requests_per_s: float = _NAN
    p50_ms: float = _NAN
    p99_ms: float = _NAN
    tokens_per_s: float = _NAN
    idle: float = _NAN


@dataclass(frozen=True)
class Contestant:
    """A process, what loads it for a number of seconds, and the targets for headlight / it by workload.

    `only` are the workloads that it takes part in, if not in all.
    """

    process: Process
    run: Callable[[Workload, int], Turn]
    bounds: Mapping[str, float] = field(default_factory=dict)
    only: Sequence[str] | None = None


class Contestants:
    """Starts contestants one by one and pauses each; the stack ends them. `facts` describes them."""

    def __init__(self, stack: ExitStack, arguments: argparse.Namespace, mixed: Workload) -> None:
        self._stack, self._arguments, self._mixed = stack, arguments, mixed
        self._model = arguments.graph or arguments.model
        self.all: dict[str, Contestant] = {}
        self.facts: list[tuple[str, str]] = []
        self._headlight = self._start_headlight(HEADLIGHT, {}, processes=arguments.processes)
        self._headlight.go_on()
        answer = httpx.get(f"{self._headlight.url}/info", trust_env=False)
        self.info: dict[str, Any] = answer.json()["models"][0]
        body = {"inputs": list(mixed.requests[0])}
        self._vectors = self._ask(self._headlight, "/encode", body)
        self._headlight.pause()
        self.facts += [
            ("model", str(self._model)),
            ("batches", f"{self.info['max_batch_tokens']} tokens"),
            ("backend", f"{self.info['backend']}, {self.info['kernels'] or 'no kernels of its own'}"),
        ]

    def add_headlight(self) -> None:
        """Add headlight without its kernels, in one process, or of another checkout, as asked for."""
        arguments = self._arguments
        if arguments.plain:
            self._start_headlight("plain", OF_PLAIN, native="off", processes=arguments.processes)
        if arguments.one_process:
            self._start_headlight("one process", {}, processes=1)
        if arguments.before is not None:
            self._start_headlight("before", {}, folder=arguments.before, processes=arguments.processes)

    def add_infinity(self) -> None:
        """Add infinity-emb, in bfloat16 where headlight runs in eight bits."""
        arguments, dtype = self._arguments, self.info["dtype"]
        peer = infinity.start_infinity(
            self._stack,
            arguments.peer,
            resolve(arguments.model),
            "bfloat16" if dtype == "int8" else dtype,
            arguments.peer_engine,
        )
        self._compare(
            "infinity",
            self._ask(peer, "/embeddings", {"model": infinity.MODEL, "input": list(self._mixed.requests[0])}),
        )
        peer.pause()
        bounds = GRAPH_OF_INFINITY if arguments.graph is not None else OF_INFINITY
        if arguments.peer_engine == "optimum":
            bounds = INT8_OF_GRAPH if dtype == "int8" else {}
        elif dtype == "int8":
            bounds = INT8_OF_INFINITY
        self.all["infinity"] = Contestant(peer, partial(_run_infinity, peer), bounds)

    def add_bare_model(self) -> None:
        """Add the model without a service, which runs the texts of the workload `mixed`."""
        bare = Bare([text for request in self._mixed.requests for text in request], model=self._model)
        self._stack.callback(bare.end)
        way = bare.ask("calibrate")
        self.facts.append(("bare model", f"batches of {way['budget']} tokens, {way['lanes']} side by side"))
        bare.pause()
        self.all["bare model"] = Contestant(bare, partial(_run_bare, bare), OF_BARE_MODEL, ("mixed",))

    def add_runtime(self) -> None:
        """Add ONNX Runtime or OpenVINO in process, in eight bits where headlight is, unless asked not to."""
        # Imports transformers and PyTorch's exporter, which nothing else here needs.
        from benchmarks.peers.plain_export import calibrate, export_plain, round_graph  # noqa: PLC0415

        name = self._arguments.runtime
        int8 = self.info["dtype"] == "int8" and not self._arguments.runtime_float32
        python = self._arguments.python or sys.executable
        tokenizer = str(resolve(EMBEDDED) / "tokenizer.json")
        graph = export_plain(Path(self._stack.enter_context(tempfile.TemporaryDirectory())))
        if int8 and name == "onnxruntime":
            graph = round_graph(graph)
        elif int8:
            graph = calibrate(graph, python, tokenizer, self._arguments.data)
        command = [python, "-m", "benchmarks.peers.bare_runtime", name, str(graph), tokenizer]
        runtime = Process(command, {}, pipes=True)
        self._stack.callback(runtime.end)
        self._compare(name, np.array([runtime.ask(json.dumps(self._mixed.requests))]))
        runtime.pause()
        bounds = (INT8_OF_RUNTIME if int8 else OF_RUNTIME)[name]
        self.all[name] = Contestant(runtime, partial(_run_runtime, runtime), bounds)

    def _start_headlight(
        self, name: str, bounds: Mapping[str, float], *, folder: Path | None = None, **settings: object
    ) -> Headlight:
        chosen: dict[str, Any] = {"model": self._model, **settings}
        server = Headlight(folder=folder, **chosen)
        self._stack.callback(server.end)
        server.wait_until_ready(_START_S)
        server.pause()
        self.all[name] = Contestant(server, partial(_run_headlight, server), bounds)
        return server

    def _ask(self, server: Server, route: str, body: object) -> np.ndarray:
        """Return the vectors of a request (B, C)."""
        answer = httpx.post(f"{server.url}{route}", json=body, timeout=_ANSWER_S, trust_env=False)
        return np.array([item["embedding"] for item in answer.raise_for_status().json()["data"]])

    def _compare(self, name: str, theirs: np.ndarray) -> None:
        """Compare the first vectors; ends the program if they are not from the same model."""
        ours = self._vectors[: len(theirs)]
        norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
        lowest = float(((ours * theirs).sum(axis=1) / norms).min())
        least = _SAME_INT8 if self.info["dtype"] == "int8" else _SAME
        if lowest < least:
            raise SystemExit(
                f"The cosine to the vectors of {name} is as low as {lowest:.6f}; it should be at least "
                f"{least}: the two do not run the same model."
            )
        self.facts.append((f"cosine to {name}", f"{lowest:.6f}, the lowest"))


def _run_headlight(server: Headlight, workload: Workload, seconds: int) -> Turn:
    """Load the service while reading how many tokens it has run."""
    bodies = [json.dumps({"inputs": texts}).encode() for texts in workload.requests]

    def load() -> tuple[Load, float]:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                drive, server, "/encode", bodies, connections=workload.connections, seconds=seconds
            )
            time.sleep(RAMP_S)
            before, start_s = server.total("headlight_input_tokens_total"), time.perf_counter()
            time.sleep(max(0.0, seconds - RAMP_S - _END_S))
            tokens = server.total("headlight_input_tokens_total") - before
            per_s = tokens / (time.perf_counter() - start_s)
            return running.result(), per_s

    (seen, tokens_per_s), idle = with_idle_share(load)
    good(seen, server.url)
    return Turn(seen.steady_per_s, seen.p50_ms, seen.p99_ms, tokens_per_s, idle)


def _run_infinity(server: Server, workload: Workload, seconds: int) -> Turn:
    seen = good(infinity.drive_infinity(server, workload, seconds), "infinity-emb")
    return Turn(seen.steady_per_s, seen.p50_ms, seen.p99_ms)


def _run_bare(bare: Bare, _: Workload, seconds: int) -> Turn:
    return Turn(tokens_per_s=bare.ask(f"run {seconds}"))


def _run_runtime(runtime: Process, workload: Workload, seconds: int) -> Turn:
    """Run batches of as many texts as the connections would have in flight, 8 at most."""
    runtime.ask(json.dumps(workload.requests))
    most = min(_BATCH, max(workload.connections * workload.texts, 1))
    per_s, milliseconds = runtime.ask(json.dumps([seconds, most]))
    return Turn(per_s, milliseconds)
