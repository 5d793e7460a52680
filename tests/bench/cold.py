"""The first result in a new process: `ptir run`, and `ptir.read` with a first call, of three small programs, in ms of CPU.

What the interpreter, NumPy's import and drawing the inputs take is subtracted. The peer is torch or jax, the quicker one: the
same function from the import to the first result, with the same subtracted. Minima of interleaved rounds. Measure a wheel in a
clean environment, as `start` says.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from math import inf
from pathlib import Path

import ptir_tools

from ._peer_engines import Ours
from ._peer_work import WORKLOADS, inputs
from .start import _tool, milliseconds

ROUNDS = 8
PROGRAMS = {"gelu": ("gelu4M", 64), "block": ("block", 8), "tiny1000": ("tiny1000", 16)}  # a workload, length of its first input
PEERS = ("torch", "jax")
DRAWN = """
import numpy as np
draw = np.random.default_rng(0)
given = [(draw.integers(-1 << 24, 1 << 24, s) / (1 << 24)).astype(np.float32) for s in {}]
"""
CALLED = """
import ptir_tools as ptir
ptir.compile(ptir.read({!r}), threads=1)(given)
"""
PEER = """
from tests.bench._peer_engines import ENGINES
from tests.bench._peer_work import WORKLOADS
engine = ENGINES[{!r}](1)
engine.array(engine.compiled(WORKLOADS[{!r}], given)())
"""


def rows() -> Iterator[tuple[str, float, float | None, str]]:
    """The table: the peer's number is that of the quicker one of those installed."""
    ptir = _tool("ptir")
    ours = [ptir] if ptir else [sys.executable, "-m", "ptir_tools"]
    with tempfile.TemporaryDirectory() as folder:
        for name, (workload, length) in PROGRAMS.items():
            first, *others = inputs(workload)
            arrays = [first[:length], *others]
            path = Path(folder) / f"{name}.ptir"
            path.write_text(ptir_tools.write(Ours(1).program(WORKLOADS[workload]._replace(given=len(arrays)), arrays)))
            drawn = DRAWN.format([x.shape for x in arrays])
            scripts = {"inputs": drawn, "call": drawn + CALLED.format(str(path))}
            scripts |= {peer: drawn + PEER.format(peer, workload) for peer in PEERS if find_spec(peer)}
            commands = {key: [sys.executable, "-c", script] for key, script in scripts.items()}
            commands["run"] = [*ours, "run", str(path), "--random", "0", "--threads", "1"]
            spent = dict.fromkeys(commands, inf)
            for _ in range(ROUNDS):
                for key, command in commands.items():
                    spent[key] = min(spent[key], milliseconds(command)[1])
            beyond = {key: x - spent["inputs"] for key, x in spent.items()}
            peer = min((beyond[p] for p in PEERS if p in beyond), default=None)
            yield f"ptir run {name}.ptir", beyond["run"], peer, "ms CPU"
            yield f"read and call {name}.ptir", beyond["call"], peer, "ms CPU"
