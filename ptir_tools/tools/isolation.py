"""Runs a function in a child process with limits on time and memory, so that a crash does not end the parent."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import TYPE_CHECKING, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    import resource
    from multiprocessing import connection
else:
    connection = lazy("multiprocessing.connection")
    resource = lazy("resource")

SECONDS = 10.0
PATIENCE = 12  # the factor of wall time over processor time on a busy machine
BYTES = 1 << 30


class Died(NamedTuple):
    """A child ended before its function did: `kind` is signal, hang or memory; `during` is what it had announced last."""

    kind: str
    message: str
    during: str


Announce = Callable[[str], None]


def isolated(function: Callable[[Announce], Iterable[T]], seconds: float = SECONDS, memory: int = BYTES) -> Iterator[T | Died]:
    """The objects that `function` yields (picklable) in a child process; the last is a `Died` when the child did not finish.
    `function` gets `announce(what)`, which names the next task and restarts the clock: a task may take `seconds` of processor
    time, or `PATIENCE` times as much wall time, and the child `memory` bytes more than this process. Raises OSError on systems
    that cannot fork.
    """
    if not hasattr(os, "fork"):
        raise OSError("programs are run in child processes, which this system cannot fork")
    ours, theirs = connection.Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        ours.close()
        _work(function, theirs, memory)
    theirs.close()
    during, died = "", None
    clock = _Clock(child)
    try:
        while died is None:
            if not ours.poll(seconds):
                if clock.took(seconds):
                    died = Died("hang", f"took more than {seconds:g} s", during)
                continue
            try:
                what, result = ours.recv()
            except EOFError:
                died = Died("signal", _end(child), during)
                child = 0
                break
            if what == "end":
                break
            if what == "found":
                yield result
            elif what == "during":
                during, clock = result, _Clock(child)
            else:
                died = Died("memory", f"took more than {memory >> 20} MiB", during)
    finally:
        ours.close()
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if died is not None:
        yield died


class _Clock:
    """The time of a child from now on."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.start = time.monotonic()
        self.spent = self.processor()

    def processor(self) -> float | None:
        """Its processor seconds; None where the system does not report them."""
        try:
            with open(f"/proc/{self.child}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def took(self, seconds: float) -> bool:
        """Whether it has used more than `seconds`."""
        now, passed = self.processor(), time.monotonic() - self.start
        if now is None or self.spent is None:
            return passed > seconds
        return now - self.spent > seconds or passed > PATIENCE * seconds


def _end(child: int) -> str:
    """The way in which a child ended without a result."""
    _, status = os.waitpid(child, 0)
    return (
        signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit status {os.waitstatus_to_exitcode(status)}"
    )


def _work(function: Callable[[Announce], Iterable[object]], pipe: connection.Connection, memory: int) -> None:
    """Run `function`, send what it yields, and end this process."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        bound = _used() + memory
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            for entry in function(lambda what: pipe.send(("during", what))):
                pipe.send(("found", entry))
            pipe.send(("end", None))
        except MemoryError:
            pipe.send(("memory", None))
    finally:
        os._exit(70)


def _used() -> int:
    """The address space of this process; 0 where the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0
