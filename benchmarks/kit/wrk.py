"""A lightweight load generator: `wrk`, with a script that sends one request after another.

Each connection sends its next request when it has its answer (a closed loop), so each request sent stands for
an answer. Requests after the first second are counted separately: a count of complete answers would miss the
requests in flight at the end, which for a slow server are a large part.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kit.servers import Server

_SCRIPT = """
local requests = {}
for line in io.lines(os.getenv("BODIES")) do
  requests[#requests + 1] = wrk.format("POST", nil, {HEADERS}, line)
end
local ffi = require("ffi")
ffi.cdef[[
  typedef struct { long s; long us; } moment;
  int gettimeofday(moment *now, void *zone);
]]
local now = ffi.new("moment")
local driving
function setup(thread)
  driving = thread
end
local last, begun = 0, nil
steady = 0
function request()
  ffi.C.gettimeofday(now, nil)
  local seconds = tonumber(now.s) + tonumber(now.us) / 1e6
  begun = begun or seconds
  if seconds - begun >= RAMP_S then steady = steady + 1 end
  last = last % #requests + 1
  return requests[last]
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\\nRESULT {"requests": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f, "errors": %d, ' ..
    '"steady": %d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout, driving:get("steady")))
end
"""
RAMP_S = 1.0


@dataclass(frozen=True)
class Load:
    """What a client saw: answers, the seconds they took, percentiles of latency, and errors of any kind.

    `steady` are the answers after the first second.
    """

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    errors: int
    steady: int

    @property
    def requests_per_s(self) -> float:
        """The rate of good answers."""
        return (self.requests - self.errors) / self.seconds

    @property
    def steady_per_s(self) -> float:
        """The rate of answers after the first second; NaN if the load was no longer than that."""
        seconds = self.seconds - RAMP_S
        return self.steady / seconds if seconds > 0 else float("nan")


def drive(
    server: Server,
    route: str,
    bodies: Sequence[bytes],
    *,
    connections: int,
    seconds: float,
    headers: Mapping[str, str] | None = None,
) -> Load:
    """Send the bodies repeatedly, over a number of connections, for a number of seconds."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise SystemExit("This program drives its load with wrk: install it (Debian: apt install wrk).")
    with tempfile.TemporaryDirectory() as folder:
        script, file = Path(folder) / "load.lua", Path(folder) / "bodies"
        named = {"Host": server.url.partition("//")[2], "Content-Type": "application/json", **(headers or {})}
        table = ", ".join(f"[{json.dumps(name)}] = {json.dumps(value)}" for name, value in named.items())
        filled = _SCRIPT.replace("HEADERS", table).replace("RAMP_S", str(RAMP_S))
        script.write_text(filled, encoding="utf-8")
        file.write_bytes(b"\n".join(bodies) + b"\n")
        command = [wrk, "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(script)]
        done = subprocess.run(
            [*command, server.url + route],
            env={"BODIES": str(file)},
            capture_output=True,
            text=True,
            check=True,
        )
    result = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return Load(**json.loads(result.removeprefix("RESULT ")))


def good(load: Load, who: str) -> Load:
    """Return a load without errors; ends the program if the load on `who` had any."""
    if load.errors:
        raise SystemExit(
            f"{load.errors} of {load.requests} requests to {who} failed, so its rate means nothing. Find "
            "out why, and measure again."
        )
    return load


def steady(load: Load, who: str) -> Load:
    """Return a load with answers after the first second; ends the program if there are none."""
    if not load.steady:
        raise SystemExit(f"{who} answered hardly any requests: raise --seconds.")
    return load
