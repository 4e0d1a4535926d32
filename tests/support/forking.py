"""Starts services by forking a process that has imported what they import.

To import PyTorch and the app takes more than half of a start, and the tests start a hundred services. What is
forked is a process like any other: with an environment, arguments, sockets, signals and an exit code of its
own. Only the imports lie behind it, so the tests of the command line and of the imports start afresh.
"""

import atexit
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
_IMPORTED = ("service.command_line", "model.pytorch.backend", "tests.support.doubles")
_MOST_BYTES = 2**17
"""Of a request: the environment and the arguments."""


class Forked:
    """A process that was forked, with what the tests use of `subprocess.Popen`."""

    def __init__(self, status: int) -> None:
        """Read the id, and later the exit code, from a pipe."""
        self._status = os.fdopen(status, "rb", buffering=0)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            select.select([self._status], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[bytes]


class _Server:
    """A process that forks others, for as long as this one lives."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        atexit.register(self.close)

    def fork(
        self, module: str, arguments: tuple[str, ...], variables: dict[str, str], out: int, err: int
    ) -> Forked:
        request = json.dumps([module, arguments, variables]).encode()
        status, theirs = os.pipe()
        socket.send_fds(self._control, [request], [out, err, theirs])
        os.close(theirs)
        return Forked(status)

    def close(self) -> None:
        self._control.close()
        self._process.wait(10)


_servers: dict[object, _Server] = {}
"""By what the processes that they fork inherit."""
_lock = threading.Lock()


def fork(
    module: str, arguments: tuple[str, ...], variables: dict[str, str], out: IO[bytes], err: IO[bytes]
) -> Forked:
    """Run `python -m module` with arguments and environment variables, and with these outputs."""
    with _lock:
        inherited = _inherited()
        if inherited not in _servers:
            _servers[inherited] = _Server()
        return _servers[inherited].fork(module, arguments, variables, out.fileno(), err.fileno())


def _inherited() -> tuple[object, ...]:
    """What a process gets from the one that starts it, and libraries read when they are loaded."""
    own = ("HEADLIGHT_", "PYTEST_", "TMPDIR")
    variables = frozenset((name, value) for name, value in os.environ.items() if not name.startswith(own))
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return variables, resource.getrlimit(resource.RLIMIT_NOFILE), ignored


def _serve(control: socket.socket) -> tuple[str, list[str]] | None:
    """Fork a process for each request, and say how it ended; the module and arguments, in what was forked."""
    running: dict[int, int] = {}
    woken, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to this process too
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 1024)
            _report(running)
        if control.fileno() not in ready:
            continue
        request, passed, _, _ = socket.recv_fds(control, _MOST_BYTES, 3)
        if not request:  # the tests have ended, or were killed
            for left in running:
                os.kill(left, signal.SIGTERM)
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, interrupt)
            control.close()
            for unneeded in (woken, wakeup, *running.values()):
                os.close(unneeded)
            return _become(request, *passed)
        *outputs, running[pid] = passed
        for output in outputs:
            os.close(output)
        os.write(running[pid], b"%d\n" % pid)


def _report(running: dict[int, int]) -> None:
    """Say of each process that has ended how it did."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        told = running.pop(pid)
        os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(told)


def _become(request: bytes, out: int, err: int, status: int) -> tuple[str, list[str]]:
    """Set up what a process of its own would have, in the one that was forked."""
    for ours, standard in ((out, 1), (err, 2)):
        os.dup2(ours, standard)
    for passed in {out, err, status}:
        os.close(passed)
    module, arguments, variables = json.loads(request)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    time.tzset()
    return module, arguments


def main(descriptor: int) -> None:
    """Import, fork on request, and in what was forked run the module as `python -m` does."""
    from service.system.process import set_environment
    from service.telemetry import scrapes

    set_environment()
    scrapes.PAUSE_S = 0.01  # tests ask for metrics before and after a request, hundreds of times
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    become = _serve(socket.socket(fileno=descriptor))
    if become is None:
        return
    module, sys.argv[1:] = become
    sys.modules.pop(module, None)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int):  # at once: to tear down PyTorch takes a quarter of a second
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise


if __name__ == "__main__":
    main(int(sys.argv[1]))
