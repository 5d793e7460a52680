"""`ptir run --dump-dir`: a trace in the layout of gpt.rs, which `ptir` reads again.

    NNNNN_materialize_%ID/  program.ptir, program.json (what ran), meta.json, stats.json
    passes/NNNNN_run_RRRR_FUNCTION_PASS.ptir
    executions.jsonl, passes.jsonl

NNNNN counts passes and runs together; a program that ran as it was written has no passes.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ptir_tools.cli.output import program_text, write_text
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Program
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.pipeline import Step
from ptir_tools.dialects.ptir import bincode, trace
from ptir_tools.dialects.ptir.lowering import lower
from ptir_tools.passes import Hook, PassContext

_REWRITES = ("rewrites", "folds", "merged")


class Dump(Hook):
    """Writes the trace to `folder`, which is empty or new. `context` is for the engine's passes; `ran` is what is traced."""

    def __init__(self, folder: str, program: Program, backend: str, options: Options) -> None:
        self.folder, self.backend, self.options = folder, backend, options
        self.ran = program
        self.context = PassContext(hooks=[self])
        self.number = self.runs = 0
        self.done: Counter[str] = Counter()
        if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
            raise UsageError(f"{folder} is not an empty folder; a trace is written to one of its own")
        os.makedirs(os.path.join(folder, "passes"), exist_ok=True)

    # ---- passes

    def before(self, step: Step, program: Program) -> None:
        """Remember what the pass had done before."""
        self.done = Counter(self.context.statistics.get(step.name))

    def after(self, step: Step, program: Program, changed: bool) -> None:
        """The program after a pass, as a file and as two events."""
        self.ran = program
        function = re.sub(r"[^\w.-]", "_", program.entry)
        name = f"{self._next()}_run_{self.runs:04}_{function}_{step.name}.ptir"
        text = "".join(program_text(program, "ptir-dump", Diagnostics(), self.options))
        write_text(os.path.join(self.folder, "passes", name), [text])
        about = {"run_id": self.runs, "function": program.entry, "pass": step.name}
        done = Counter(self.context.statistics.get(step.name)) - self.done
        stats = {
            "changed": changed,
            "iterations": 1,
            "rewrites_applied": sum(done[what] for what in _REWRITES),
            "erased_insts": done["erased"],
            "body_len": len(program.main.body),
        }
        self._event("OptimizerPassStats", about | {"stats": stats})
        self._event("OptimizerPassIr", about | {"program_ptir": text})

    def _event(self, event: str, data: dict[str, Any]) -> None:
        self._append("passes.jsonl", {"timestamp": _now(), "trace_id": None, "kind": {"event": event, "data": data}})

    # ---- runs

    @contextmanager
    def run(self) -> Iterator[None]:
        """Around one execution: a folder for it, be it one that fails."""
        stamp, start = _now(), time.perf_counter_ns()
        try:
            yield
        except (Rejected, LimitExceeded) as error:
            self._run(stamp, start, {"status": "Failure", "details": {"message": str(error)}})
            raise
        self._run(stamp, start, {"status": "Success"})

    def _run(self, stamp: dict[str, int], start: int, status: dict[str, Any]) -> None:
        found = Diagnostics(self.ran.source)
        texts = {
            name: "".join(program_text(self.ran, form, found, self.options))
            for name, form in ((trace.STRUCTURE, "ptir-dump"), (trace.PAYLOADS, "ptir-json"))
        }
        found.raise_if_errors()
        meta = self._meta(stamp)
        seconds, nanos = divmod(time.perf_counter_ns() - start, 10**9)
        stats = {"duration": {"secs": seconds, "nanos": nanos}, "output_count": len(meta["outputs"]), "status": status}
        first = "".join(f"_%{i}" for i in meta["targets"][:1])
        inside = os.path.join(self.folder, f"{self._next()}_materialize{first}")
        os.makedirs(inside)
        for name, text in {**texts, "meta.json": json.dumps(meta, indent=2), "stats.json": json.dumps(stats, indent=2)}.items():
            write_text(os.path.join(inside, name), [text])
        self._append("executions.jsonl", {"context": meta, "stats": stats, "dumped": True})
        self.runs += 1

    def _meta(self, stamp: dict[str, int]) -> dict[str, Any]:
        lowered = lower(self.ran, Diagnostics())
        blocks = lowered[0] if lowered else []
        main = next(b for b in blocks if b.name == self.ran.entry)
        results = list(dict.fromkeys(main.ids[v] for v in main.results))
        types = ", ".join(self.ran.dialect.type_text(p.type) for p in main.params)
        return {
            "trace_id": self.runs,
            "graph_id": 0,
            "backend": self.backend,
            "plan_hash": bincode.program_hash(self.ran, Diagnostics()),
            "plan_graph_hash": bincode.program_hash(self.ran, Diagnostics(), canonical=True),
            "plan_specialization_hash": bincode.fnv1a([types.encode()]),
            "cache": {"plan_cache_hit": False, "program_cache_hit": False},
            "targets": results,
            "outputs": results,
            "exports": [],
            "timestamp": stamp,
            "kind": {"kind": "Materialize", "payload": {"values": results}},
        }

    def _next(self) -> str:
        self.number += 1
        return f"{self.number - 1:05}"

    def _append(self, name: str, record: dict[str, Any]) -> None:
        with open(os.path.join(self.folder, name), "a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")


def _now() -> dict[str, int]:
    seconds, nanos = divmod(time.time_ns(), 10**9)
    return {"secs_since_epoch": seconds, "nanos_since_epoch": nanos}
