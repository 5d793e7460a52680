"""`pto-isa`: what `--to pto-cpp` writes, held to the public tile library. Two commands compile it; none of the library is here.

`--cc 'COMMAND {source} {binary}'` builds a host program with the library's simulator, whose numbers are compared with those of
`ptir run`.
`--static-cc 'COMMAND {source}'` only has to accept the text: with it the headers of the chip check what they assert.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from ptir_tools import api
from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.targets import declared, find, retarget
from ptir_tools.dialects.pto.text.cpp import write
from ptir_tools.dialects.pto.text.cpp.host import host
from ptir_tools.engines import run as execute
from ptir_tools.engines.options import RunOptions
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.tools.inputs import Inputs
from ptir_tools.tools.toolchain import Project
from tests.pto.by_hand import CASES
from tests.pto.programs import KERNELS
from tests.suites import pto_ops
from tests.suites.report import Report

# Faults of the simulator, by a part of the case's name and of what it says: the line of its headers that shows each.
FAULTS = (
    (" bf16 ", "is", "common/type.hpp:463: bf16 is f16 in the simulator"),
    ("op col", "TCol", "cpu/TColMax.hpp:39, cpu/TColSum.hpp:37: integers of 16 and 32 bits are missing"),
    ("op print f16", "TPrint.hpp", "cpu/TPrint.hpp:56: f16 is not printed"),
    ("op sort32", "o_r[0, 0] is 0.0", "cpu/TSort32.hpp:124: one row of indices for all rows, and nothing is sorted"),
    ("op rems", "TREMS_IMPL", "cpu/TBinSOps.hpp:211: the scratch of a remainder has the type of its result"),
)
ULPS = 8  # of the type, relative to the number; sums and products relative to the largest one
Arrays = dict[str, np.ndarray]


def said(why: Rejected) -> str:
    """The first error of a compiler, or how the program ended."""
    (found,) = why.diagnostics
    return re.sub(r"^\S*/", "", found.notes[0]) if found.notes else found.message


def differs(name: str, got: np.ndarray, want: np.ndarray, exact: bool) -> str:
    """How a result is not what it should be."""
    if want.dtype.kind in "iub":
        bad = got != want
    else:
        eps = float(ml_dtypes.finfo(want.dtype).eps)
        got, want = got.astype(np.float64), want.astype(np.float64)
        finite = np.abs(want[np.isfinite(want)])
        scale = np.abs(want) if exact else finite.max(initial=0.0)
        with np.errstate(invalid="ignore"):
            bad = ~((np.abs(got - want) <= ULPS * eps * scale) | (got == want) | (np.isnan(got) & np.isnan(want)))
    if not bad.any():
        return ""
    at = np.argwhere(bad)[0]
    where = tuple(at)
    return f"{name}{at.tolist()} is {got[where]}, not {want[where]} ({int(bad.sum())} of {bad.size})"


class Gate:
    """The commands, the target, and what became of each case."""

    def __init__(self, cc: str, static_cc: str, target: str, report: Report) -> None:
        self.cc, self.static_cc, self.target, self.report = cc, static_cc, target, report

    def case(self, name: str, program: Program | None, inputs: Arrays | None = None, exact: bool = False) -> None:
        """Lower, write, compile and compare one program."""
        if program is None:
            self.report.refused[name] = "is not translated"
            return
        found = Diagnostics(program.source)
        try:
            run_pipeline(program, f"pto{{target={self.target}}}", PassContext(diagnostics=found))
            text = "".join(write(program, found, Options())) if not found.errors else ""
        except (Rejected, Violation) as why:
            self.report.refused[name] = str(why)
            return
        if not text:
            self.report.refused[name] = next(d.message for d in found if d.severity == "error")
            return
        with tempfile.TemporaryDirectory() as folder:
            self.checked(name, program, Project(folder, host(program, Options()), [text]), inputs, exact)

    def checked(self, name: str, program: Program, project: Project, inputs: Arrays | None, exact: bool) -> None:
        """Compile and compare."""
        arrays = inputs or Inputs((), (), 7).arrays(program)
        if self.static_cc:
            try:
                project.build(self.static_cc)
            except Rejected as why:
                self.report.errors[f"{name} (headers)"] = said(why)
        if self.cc:
            try:
                project.build(self.cc)
                made = project.run(arrays)
            except Rejected as why:
                self.failed(self.report.errors, name, said(why))
                return
            expected = execute(program, {k: v.copy() for k, v in arrays.items()}, RunOptions())
            if wrong := next(filter(None, (differs(k, x, expected[k], exact) for k, x in made.items())), ""):
                self.failed(self.report.wrong, name, wrong)
                return
        if self.cc or f"{name} (headers)" not in self.report.errors:
            self.report.right.append(name)

    def failed(self, cases: dict[str, str], name: str, why: str) -> None:
        """A case that the simulator rejects or computes differently; a fault of its own is a refusal with its header."""
        fault = next((line for part, said, line in FAULTS if part in f"{name} " and said in why), "")
        if fault:
            self.report.refused[name] = fault
        else:
            cases[name] = why


def kernels(target: str) -> Iterator[tuple[str, Program, Arrays | None]]:
    """The kernels of `testdata/pto/kernels` that are for this target or for any."""
    for file in sorted(KERNELS.glob("*.pto")):
        try:
            program = api.read(file.read_text(), "pto")
        except Rejected:  # a kernel that is wrong on purpose
            continue
        if (own := declared(program)) is not None and find(own) is not find(target) and not file.stem.startswith("hand_"):
            continue
        case = CASES.get(file.stem.removeprefix("hand_"))
        retarget(program, target)
        yield f"kernel {file.stem}", program, case().inputs if case and file.stem.startswith("hand_") else None


def run(only: str, every: int, cc: str, static_cc: str, target: str) -> Report:
    """Kernels, PTIR programs, and each op in each of its element types."""
    report = Report(f"pto-isa {target}")
    gate = Gate(cc, static_cc, target, report)
    cases = [(name, lambda p=p: p, given, False) for name, p, given in kernels(target)]
    for name, text in pto_ops.PROGRAMS.items():
        made = lambda t=text: translate(api.read(t, "ptir"), "pto", Diagnostics(), Options(target=target))  # noqa: E731
        cases.append((f"ptir {name}", made, None, False))
    for name, dtypes in sorted(element_types(find(target)).items()):
        for dtype in sorted(dtypes):
            for k, source in enumerate(pto_ops.kernels_of(name, dtype, target)):
                cases.append((f"op {name} {dtype} {k}", lambda s=source: api.read(s, "pto"), None, name not in pto_ops.SUMS))
    for name, made, given, exact in [c for c in cases if only in c[0]][::every]:
        try:
            gate.case(name, made(), given, exact)
        except Rejected as why:
            report.refused[name] = str(why).splitlines()[0]
    return report
