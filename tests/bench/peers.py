"""`python -m tests.bench peers`: whole workloads on the native engine and what people would use instead, where it is installed
(`pip install -e '.[peers]'`).

Each engine is a process of its own with so many threads. On each workload they take turns, with a pause in between: the idle
threads of NumPy's BLAS and of ONNX Runtime look for work for some time, on a core that the next one needs. The minima of wall
time count, or with `--cpu` the least mean of processor time of a batch of calls, for a machine that others use. The ratio is the
best peer's time over ours: above 1 we are faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time, sleep

import numpy as np

from tests.bench._peer_engines import ENGINES, Skipped
from tests.bench._peer_work import MODELS, WORKLOADS, inputs, needs, reference

ROOT = Path(__file__).parents[2]
NO_PEERS = ("ptir", "ptir_numpy")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC", "PJRT_NPROC")
# The variables that hold an engine to an instruction set.
HELD = {
    "avx2": {"PTIR_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
             "ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"},
    "avx512": {"PTIR_ISA": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512",
               "ATEN_CPU_CAPABILITY": "avx512", "OPENBLAS_CORETYPE": "SkylakeX"},
}  # fmt: skip
NOT_HELD = ("jax", "ort")  # left out: ONNX Runtime has no such variable, and products of JAX do not follow XLA's
LONGEST = 200  # calls of a round
BATCH = 0.002  # seconds of a batch of calls, of which the least mean counts
WARM = 0.03  # seconds of calls that do not count: after a pause a core takes ten milliseconds to reach its clock
PAUSE = 0.2  # seconds after which the threads of the engine before sleep


def serve(name: str, threads: int) -> None:
    """One engine: answers a line of JSON with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine, call = None, None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["do"] == "start":
                engine, answer = ENGINES[name](threads), {}
            elif asked["do"] == "prepare":
                call = None
                work = WORKLOADS[asked["workload"]]
                begin = perf_counter()
                call = engine.compiled(work, inputs(asked["workload"]))
                found = np.asarray(engine.array(call()), np.float64)
                first, begin = perf_counter() - begin, process_time()  # a busy machine delays a call
                call()
                exact = np.load(asked["reference"])
                error = np.abs(found.reshape(exact.shape) - exact).max() / np.abs(exact).max()
                answer = {"first": first, "second": process_time() - begin, "right": bool(error <= work.tolerance)}
            else:
                begin = perf_counter()
                while perf_counter() - begin < WARM:
                    call()
                best, least_busy, left = math.inf, math.inf, asked["calls"]
                while left:
                    busy, calls = process_time(), 0
                    while left and (not calls or process_time() - busy < BATCH):
                        begin = perf_counter()
                        call()
                        best = min(best, perf_counter() - begin)
                        left, calls = left - 1, calls + 1
                    # What other threads took may be counted later than the call: the mean of a batch has it.
                    least_busy = min(least_busy, (process_time() - busy) / calls)
                answer = {"wall": best, "cpu": least_busy}
        except Skipped:
            answer = {"skipped": True}
        except Exception as e:  # a peer may fail in any way; the others go on
            answer = {"failed": f"{type(e).__name__}: {e}"[:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Process:
    """An engine in a process of its own."""

    def __init__(self, name: str, threads: int, isa: str) -> None:
        limits = dict.fromkeys(THREADS, str(threads)) | HELD.get(isa, {})
        limits["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
        command = [sys.executable, "-m", "tests.bench", "peers", "--serve", f"{name}:{threads}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **limits}, text=True, **pipes)

    def ask(self, **what: object) -> dict[str, object]:
        """The answer; "failed" when the process is over."""
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline() or '{"failed": "the process ended"}')
        except BrokenPipeError:
            return {"failed": "the process ended"}

    def end(self) -> None:
        """Stop it."""
        self.process.stdin.close()
        self.process.wait()


def measured(name: str, processes: dict[str, Process], rounds: int, budget: float, clock: str) -> dict[str, float]:
    """The least time of a call on each engine that has the workload and gets it right."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/reference.npy"
        np.save(file, reference(name))
        ready = {}
        for engine, process in processes.items():
            answer = process.ask(do="prepare", workload=name, reference=file)
            if "second" in answer and answer["right"]:
                ready[engine] = max(1, min(LONGEST, int(budget / max(1e-6, answer["second"]))))
            elif "skipped" not in answer:
                print(f"{name}: {engine}: {answer.get('failed', 'a wrong result')}", file=sys.stderr)
    best = dict.fromkeys(ready, math.inf)
    for turn in range(rounds):
        order = list(ready)[turn % max(1, len(ready)) :] + list(ready)[: turn % max(1, len(ready))]
        for engine in order:
            sleep(PAUSE)
            answer = processes[engine].ask(do="run", calls=ready[engine])
            best[engine] = min(best[engine], answer.get(clock, math.inf))
    return best


def machine() -> dict[str, float]:
    """What one thread can do at most, by `roof.c`; nothing where it cannot be compiled."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["cc", "-O2", "-o", f"{folder}/roof", str(Path(__file__).with_name("roof.c"))]
        try:
            subprocess.run(command, check=True, capture_output=True)
            return json.loads(subprocess.run([f"{folder}/roof"], check=True, capture_output=True).stdout)
        except (OSError, subprocess.CalledProcessError):
            return {}


def least(name: str, limits: dict[str, float]) -> float:
    """The seconds that one thread needs at least: for the products, or for reading the inputs and writing the result."""
    operations, moved = needs(name)
    kind = {"bfloat16": "bf16", "int8": "int8"}.get(inputs(name)[0].dtype.name, "f32")
    return max(operations / limits[kind], moved / limits["bytes"])


def table(threads: int, engines: list[str], workloads: list[str], rounds: int, budget: float, clock: str, isa: str) -> None:
    """Measure and print; `isa` is empty for the best that each engine has."""
    started = {name: Process(name, threads, isa) for name in engines if not (isa and name in NOT_HELD)}
    processes = {name: p for name, p in started.items() if "failed" not in p.ask(do="start")}
    print(f"\n{threads} thread{'s' * (threads > 1)}, ms ({', '.join(processes)})")
    limits = machine() if threads == 1 else {}
    print(", ".join(f"{kind}: {1e-9 * most:.0f} G/s" for kind, most in limits.items()))
    print(f"{'':12} {'ours':>9} {'best peer':>20} {'ratio':>6} {'to ours on NumPy':>17} {'of the roof':>12}")
    ratios = []
    for name in workloads:
        best = measured(name, processes, rounds, budget, clock)
        peers = {e: t for e, t in best.items() if e not in NO_PEERS}
        if "ptir" not in best or not peers:
            continue
        peer = min(peers, key=peers.__getitem__)
        ratios.append(peers[peer] / best["ptir"])
        own = f"{best['ptir_numpy'] / best['ptir']:.2f}" if "ptir_numpy" in best else "-"
        other = f"{peer} {1e3 * peers[peer]:.3f}"
        share = f"{least(name, limits) / best['ptir']:.2f}" if limits else "-"
        print(f"{name:12} {1e3 * best['ptir']:9.3f} {other:>20} {ratios[-1]:6.2f} {own:>17} {share:>12}", flush=True)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {mean:.2f}; {sum(r < 0.9 for r in ratios)} of {len(ratios)} under 0.9")
    for process in started.values():
        process.end()


def main(arguments: list[str]) -> None:
    """Tables for the numbers of threads asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench peers", description=__doc__.split("\n\n")[0])
    parser.add_argument("-t", "--threads", default="1,2", help="numbers of threads, a table for each")
    parser.add_argument("-w", "--workloads", default=",".join(WORKLOADS), help="some of these, the default; or models")
    parser.add_argument("-e", "--engines", default=",".join(ENGINES), help="some of these, the default")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.05, help="seconds of a round on one engine")
    parser.add_argument("--cpu", action="store_true", help="compare processor time")
    parser.add_argument("--isa", choices=HELD, default="", help="hold ours and the peers to an instruction set")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.serve:
        name, threads = asked.serve.split(":")
        return serve(name, int(threads))
    workloads, engines = asked.workloads.replace("models", ",".join(MODELS)).split(","), asked.engines.split(",")
    if unknown := [n for n in workloads if n not in WORKLOADS] + [n for n in engines if n not in ENGINES]:
        parser.error(f"unknown: {', '.join(unknown)}")
    for threads in map(int, asked.threads.split(",")):
        table(threads, engines, workloads, asked.rounds, asked.budget, "cpu" if asked.cpu else "wall", asked.isa)
    return None
