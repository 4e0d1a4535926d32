"""Measures what refusals cost the service, each kind of them, beside ordinary answers of the same routes.

    python -m benchmarks.stress.refusals [--count 500] [--only "no model,no route"]

Starts the service in one process with float32 and sends each request of the catalogue in
`tests/support/refusals.py` many times over one connection, one after the other. `loop` is the processor time
that a request takes on the event loop, without what the server around the app does with sockets, and
`process` that of the whole process, divided by the number of requests. Both leave out the time for which
other processes had the cores. The target is 0.3 ms of the loop for all but one in a hundred refusals. Those
that the connection answers itself reach no app, so that only `process` is known. For refusals on arrival it
is also measured with many connections at once; the target is 0.05 ms.
"""

from contextlib import ExitStack

import numpy as np

from benchmarks.kit import machine, tables
from benchmarks.kit.command_line import parser_for, some_of
from tests.support.refusals import REFUSALS, Cost, Services, measure, measure_together
from tests.support.serving import Service

LOOP_S = 0.0003
"""The target."""
# Requests before those that are measured; and those of a kind that takes long.
_FIRST, _FEW = 30, 20
# How many are sent on many connections at a time, and how often.
_ARRIVALS, _TIMES = 6400, 5


def main() -> None:
    """Measure and print."""
    parser = parser_for(__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--only", type=some_of(list(REFUSALS)), default=list(REFUSALS))
    arguments = parser.parse_args()
    tables.print_facts("Machine", machine.facts("float32"))
    heads = ["refusal", "kind", "status", "loop p50", "loop p99", "process", "ordinary: loop p50", "process"]
    rows, over = [], []
    with ExitStack() as stack:
        services = Services(stack)
        arrivals = arrive(services, arguments.only)
        for name in arguments.only:
            refusal = REFUSALS[name]
            service = services[refusal.place]
            count = _FEW if refusal.place == "hurried" else arguments.count
            cost = warm(service, refusal.sent, count)
            assert cost.statuses == {refusal.status}, (name, cost.statuses)
            rows.append(
                [name, f"{refusal.protocol} {refusal.kind}", str(refusal.status), *told(cost, 50, 99)]
            )
            if refusal.ordinary is None or refusal.place != "plain":
                rows[-1] += ["", ""]
            else:
                rows[-1] += told(warm(service, refusal.ordinary, max(_FEW, count // 10)), 50)
            if cost.loop_s and np.percentile(cost.loop_s, 99) > LOOP_S:
                over.append(name)
    tables.print_table("What refusals cost, in ms", heads, rows)
    if arrivals:
        tables.print_table("What refusals on arrival cost, many at once", ["refusal", "process"], arrivals)
    print(f"Above {1e3 * LOOP_S:g} ms of the loop at p99: {', '.join(over) or 'none'}")


def arrive(services: Services, names: list[str]) -> list[list[str]]:
    """Measure the refusals on arrival, in ms: the median of some measurements."""
    rows = []
    for name in names:
        refusal = REFUSALS[name]
        if refusal.place in ("full", "loading") and not refusal.in_app:
            service = services[refusal.place]
            times = [
                measure_together(service, refusal.sent, refusal.status, _ARRIVALS) for _ in range(_TIMES)
            ]
            rows.append([name, f"{1e3 * np.median(times):.3f}"])
    return rows


def warm(service: Service, sent: bytes, count: int) -> Cost:
    """Measure a request after some others, for which memory was allocated and code was read."""
    measure(service, sent, min(_FIRST, count))
    return measure(service, sent, count)


def told(cost: Cost, *percentiles: int) -> list[str]:
    """Write these percentiles of the time on the loop, and the time of the process, in milliseconds."""
    loop = [f"{1e3 * np.percentile(cost.loop_s, q):.3f}" if cost.loop_s else "–" for q in percentiles]
    return [*loop, f"{1e3 * cost.process_s:.3f}"]


if __name__ == "__main__":
    main()
