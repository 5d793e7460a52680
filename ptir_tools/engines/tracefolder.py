"""A trace in the layout of gpt.rs, which `ptir` reads again.

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

from ptir_tools.convert import HUB, translate
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.files import require_writable
from ptir_tools.core.typed import Any
from ptir_tools.dialects import load_format
from ptir_tools.dialects.ptir.gptrs import bincode, trace
from ptir_tools.dialects.ptir.gptrs.lowering import lower
from ptir_tools.engines.sinks import Execution, PassEvent, TraceSink

_REWRITES = ("rewrites", "folds", "merged")


class TraceFolder(TraceSink):
    """Writes the trace to `folder`, which is empty or new. `options` are for the writers. Raises UsageError for a folder that
    is not empty, and at a run for a program that cannot become PTIR; Rejected for one that gpt.rs's formats cannot express;
    OSError."""

    def __init__(self, folder: str | os.PathLike[str], options: Options | None = None) -> None:
        self.folder, self.options = os.fspath(folder), options or Options()
        self.number = self.runs = 0
        if os.path.exists(self.folder) and (not os.path.isdir(self.folder) or os.listdir(self.folder)):
            raise UsageError(f"{self.folder} is not an empty folder; a trace is written to one of its own")
        require_writable(self.folder)
        os.makedirs(os.path.join(self.folder, "passes"), exist_ok=True)

    def before(self, execution: Execution) -> None:
        """Check that gpt.rs's formats can express the program."""
        diagnostics = Diagnostics(execution.program.source)
        lower(self._ptir(execution), diagnostics)
        diagnostics.raise_if_errors()

    def passed(self, execution: Execution, event: PassEvent) -> None:
        """The program after a pass, as a file and as two events."""
        program = event.program
        function = re.sub(r"[^\w.-]", "_", program.entry)
        name = f"{self._next()}_run_{self.runs:04}_{function}_{event.name}.ptir"
        text = self._text(program, "ptir-dump")
        self._write(text, "passes", name)
        about = {"run_id": self.runs, "function": program.entry, "pass": event.name}
        stats = {
            "changed": event.changed,
            "iterations": 1,
            "rewrites_applied": sum(event.counts.get(what, 0) for what in _REWRITES),
            "erased_insts": event.counts.get("erased", 0),
            "body_len": len(program.main.body),
        }
        self._event("OptimizerPassStats", about | {"stats": stats})
        self._event("OptimizerPassIr", about | {"program_ptir": text})

    def after(self, execution: Execution) -> None:
        """Write a folder for the run, also for a failed one."""
        ran = self._ptir(execution)
        texts = {name: self._text(ran, form) for name, form in _FORMS.items()}
        meta = self._meta(ran, execution)
        failed = {"status": "Failure", "details": {"message": str(execution.error)}}
        seconds, nanos = divmod(execution.nanoseconds, 10**9)
        stats = {
            "duration": {"secs": seconds, "nanos": nanos},
            "output_count": len(meta["outputs"]),
            "status": {"status": "Success"} if execution.error is None else failed,
        }
        inside = f"{self._next()}_materialize" + "".join(f"_%{i}" for i in meta["targets"][:1])
        os.makedirs(os.path.join(self.folder, inside))
        for name, text in texts.items():
            self._write(text, inside, name)
        self._write(json.dumps(meta, indent=2), inside, "meta.json")
        self._write(json.dumps(stats, indent=2), inside, "stats.json")
        self._append("executions.jsonl", {"context": meta, "stats": stats, "dumped": True})
        self.runs += 1

    def _ptir(self, execution: Execution) -> Program:
        hub = translate(execution.program, HUB, Diagnostics())
        if hub is None:
            raise UsageError("a trace is written in PTIR, and this program has no translation; ptir translate --to ptir says why")
        return hub

    def _meta(self, ran: Program, execution: Execution) -> dict[str, Any]:
        blocks = (lower(ran, Diagnostics()) or [[]])[0]
        main = next(b for b in blocks if b.name == ran.entry)
        results = list(dict.fromkeys(main.ids[v] for v in main.results))
        types = ", ".join(ran.dialect.type_text(p.type) for p in main.params)
        return {
            "trace_id": self.runs,
            "graph_id": 0,
            "backend": execution.engine,
            "plan_hash": bincode.program_hash(ran, Diagnostics()),
            "plan_graph_hash": bincode.program_hash(ran, Diagnostics(), canonical=True),
            "plan_specialization_hash": bincode.fnv1a([types.encode()]),
            "cache": {"plan_cache_hit": False, "program_cache_hit": False},
            "targets": results,
            "outputs": results,
            "exports": [],
            "timestamp": _stamp(execution.started),
            "kind": {"kind": "Materialize", "payload": {"values": results}},
        }

    def _event(self, event: str, data: dict[str, object]) -> None:
        kind = {"event": event, "data": data}
        self._append("passes.jsonl", {"timestamp": _stamp(time.time_ns()), "trace_id": None, "kind": kind})

    def _next(self) -> str:
        self.number += 1
        return f"{self.number - 1:05}"

    def _text(self, program: Program, form: str) -> str:
        writer, diagnostics = load_format(form).write, Diagnostics(program.source)
        assert writer is not None
        text = "".join(writer(program, diagnostics, self.options))
        diagnostics.raise_if_errors()
        return text

    def _write(self, text: str, *path: str) -> None:
        with open(os.path.join(self.folder, *path), "w", encoding="utf-8", newline="\n") as file:
            file.write(text)

    def _append(self, name: str, record: dict[str, object]) -> None:
        with open(os.path.join(self.folder, name), "a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")


_FORMS = {trace.STRUCTURE: "ptir-dump", trace.PAYLOADS: "ptir-json"}


def _stamp(nanoseconds: int) -> dict[str, int]:
    seconds, nanos = divmod(nanoseconds, 10**9)
    return {"secs_since_epoch": seconds, "nanos_since_epoch": nanos}
