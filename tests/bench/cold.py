"""The first result in a new process: `ptir run`, and `ptir.read` with a first call, of three small programs, in ms of CPU.

What the interpreter and the imports of NumPy and its generators take is subtracted. Of the rest, work is what a warm process
does again on the same arrays: drawing inputs, the call, printing; for `ptir.read` the call. Start is what is left. The peer is
torch or jax, the quicker one: the same function from the import to the first result on inputs that are there. Minima of
interleaved rounds. Measure a wheel in a clean environment, as `start` says.
"""

from __future__ import annotations

import os
import subprocess
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
NUMPY = "import numpy; numpy.random.default_rng(0)"
DRAWN = """
import numpy as np
draw = np.random.default_rng(0)
given = [(draw.integers(-1 << 24, 1 << 24, s) / (1 << 24)).astype(np.float32) for s in {}]
"""
CALLED = """
import ptir_tools as ptir
ptir.compile(ptir.read({!r}), threads=1)(given)
"""
WARM = """
import sys
from time import process_time
import numpy as np
import ptir_tools as ptir
from ptir_tools.engines.inputs import random_inputs
program = ptir.read({!r})
step, given = ptir.compile(program, threads=1), random_inputs(program, 0)
least = [9.0] * 3
for _ in range(6):
    at = [process_time()]
    random_inputs(program, 0)
    at.append(process_time())
    found = step(given)
    at.append(process_time())
    print(*found.values(), file=sys.stderr)
    at.append(process_time())
    least = [min(x, b - a) for x, a, b in zip(least, at, at[1:])]
print(*least)
"""
PEER = """
from tests.bench._peer_engines import ENGINES
from tests.bench._peer_work import WORKLOADS
engine = ENGINES[{!r}](1)
engine.array(engine.compiled(WORKLOADS[{!r}], given)())
"""


def warm(path: Path) -> list[float]:
    """Milliseconds of drawing inputs, of a call and of printing its results, in a process that has done each before."""
    command, quiet = [sys.executable, "-c", WARM.format(str(path))], {"stderr": subprocess.DEVNULL, "text": True}
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    return [
        float(x) * 1e3
        for x in subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment, **quiet).stdout.split()
    ]


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
            scripts = {"numpy": NUMPY, "inputs": drawn, "call": drawn + CALLED.format(str(path))}
            scripts |= {peer: drawn + PEER.format(peer, workload) for peer in PEERS if find_spec(peer)}
            commands = {key: [sys.executable, "-c", script] for key, script in scripts.items()}
            commands["run"] = [*ours, "run", str(path), "--random", "0", "--threads", "1"]
            spent = dict.fromkeys(commands, inf)
            for _ in range(ROUNDS):
                for key, command in commands.items():
                    spent[key] = min(spent[key], milliseconds(command)[1])
            draws, calls, prints = warm(path)
            peer = min((spent[p] - spent["inputs"] for p in PEERS if p in spent), default=None)
            run, call = spent["run"] - spent["numpy"], spent["call"] - spent["inputs"]
            yield f"ptir run {name}.ptir, start", run - draws - calls - prints, peer, "ms CPU"
            yield f"ptir run {name}.ptir, work", draws + calls + prints, None, f"ms CPU: inputs {draws:.1f}, call {calls:.1f}"
            yield f"read and call {name}.ptir, start", call - calls, peer, "ms CPU"
            yield f"read and call {name}.ptir, work", calls, None, "ms CPU"
