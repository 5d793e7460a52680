"""The console script, and `python -m ptir_tools`: Ctrl-C is answered from here on, while modules are still loaded."""

from __future__ import annotations

import atexit
import gc
import os
import sys

from ptir_tools.core.cpython import signal

TYPE_CHECKING = False  # that of `typing` costs a millisecond, in which nothing answers
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
_COLLECTED = 100_000  # new objects between two collections: loading modules makes many, and nearly all of them stay
_LOADING = "<frozen importlib"


def _stop() -> None:
    """End as an interrupted command does."""
    try:
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


def _answer(number: int, frame: FrameType | None) -> None:
    """Let the command end itself; while a module is loaded, where an exception may be lost or change its kind, stop at once."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_LOADING):
            _stop()
        frame = frame.f_back
    raise KeyboardInterrupt


def _version() -> int:
    """Print the version. What goes wrong with that is left to the command line, which says it."""
    from ptir_tools import __version__

    try:
        os.write(1, f"ptir {__version__}\n".encode())
    except OSError:
        from ptir_tools import cli

        return cli.main()
    return 0


def _watched() -> bool:
    """Whether a debugger, a profiler or `python -i` goes on after the command."""
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    tools = [monitoring.get_tool(i) for i in range(6)] if monitoring is not None else []
    return bool(sys.flags.inspect or any((sys.gettrace(), sys.getprofile(), *tools)))


def _end(status: int) -> int:
    """End the process as the interpreter does, without freeing every module first."""
    if not _watched():
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()  # waits for threads
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def main() -> int:
    """Run the command line, and end the process with its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]) and sys.stdout is not None:  # answered before click is imported
        return _version()
    gc.set_threshold(_COLLECTED)
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else the caller wants it ignored
    try:
        if ours:
            signal.signal(signal.SIGINT, _answer)
        from ptir_tools import cli

        status = cli.main()
        if ours:  # there is nothing left to stop
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        _stop()
    return _end(status)


def _forget_current_folder() -> None:
    """`python -m` looks for modules in the current folder first, where a file from elsewhere may be named `numpy.py`."""
    try:
        here = os.getcwd()
    except OSError:  # it is gone
        here = ""
    if sys.path[:1] and sys.path[0] in ("", here, os.path.dirname(os.path.abspath(__file__))):
        del sys.path[0]


if __name__ == "__main__":
    _forget_current_folder()
    sys.exit(main())
