"""`pto-isa`: what `--to pto-cpp` writes, held to the public tile library. Two commands compile it; none of the library is here.

`--cc 'COMMAND {source} {binary}'` builds a host program with the library's simulator, whose numbers are compared with those of
`ptir run`.
`--static-cc 'COMMAND {source}'` only has to accept the text: with it the headers of the chip check what they assert.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

from ptir_tools import api
from ptir_tools.convert import translate
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.targets import declared, find, retarget
from ptir_tools.dialects.pto.text.cpp import write
from ptir_tools.dialects.pto.types import MemRefType
from ptir_tools.engines import run as execute
from ptir_tools.engines.options import RunOptions
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.tools.inputs import Inputs
from tests.pto.by_hand import CASES
from tests.pto.programs import KERNELS
from tests.suites import pto_ops
from tests.suites.report import Report

# Faults of the simulator, by a part of the case's name and of what it says: the line of its headers that shows each.
FAULTS = (
    (" bf16 ", "is", "common/type.hpp:463: bf16 is f16 in the simulator"),
    ("op col", "TCol", "cpu/TColMax.hpp:39, cpu/TColSum.hpp:37: integers of 16 and 32 bits are missing"),
    ("op print f16", "TPrint.hpp", "cpu/TPrint.hpp:56: f16 is not printed"),
    ("op rems", "TREMS_IMPL", "cpu/TBinSOps.hpp:211: the scratch of a remainder has the type of its result"),
)
ULPS = 8  # of the type, relative to the number; sums and products relative to the largest one
HEAD = """#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>
#include <pto/pto-inst.hpp>
#define __DAV_CUBE__
#define __DAV_VEC__
#ifdef __CPU_SIM  // one thread does the parts of both cores, in the order of the text
#define getFFTSMsg(...) 0
#define ffts_cross_core_sync(...)
#define wait_flag_dev(...)
#define set_intra_block(...)
#define wait_intra_block(...)
#endif
"""
READ = """
template <typename T> std::vector<T> given(const std::string &name) {
  std::ifstream in(name, std::ios::binary);
  std::vector<char> raw((std::istreambuf_iterator<char>(in)), {});
  std::vector<T> made(raw.size() / sizeof(T));
  std::memcpy((void *)made.data(), raw.data(), raw.size());
  return made;
}
"""
Arrays = dict[str, np.ndarray]


def main_of(program: Program, text: str, inputs: Arrays, folder: Path) -> str:
    """A host program that reads the inputs of a kernel, calls it and writes its memory."""
    name, parameters = re.findall(r"__global__ AICORE void (\w+)\(([^;{]*)\) \{", text)[-1]
    given, reads, writes = list[str](), list[str](), list[str]()
    for p in program.main.params:
        if not isinstance(p.type, MemRefType):
            given.append(repr(inputs[p.name].item()).lower())
            continue
        array = inputs[p.name]
        array.tofile(folder / f"{p.name}.in")
        kind = re.search(rf"__gm__ (\w+) \*{re.escape(p.name)}\b", parameters)
        element = kind[1] if kind else re.findall(r"__gm__ (\w+) \*", parameters)[len(reads)]
        reads.append(f'  auto m{len(reads)} = given<{element}>("{folder / p.name}.in");')
        k, out = len(writes), f'std::ofstream("{folder / p.name}.out", std::ios::binary)'
        writes.append(f"  {out}.write((char *)m{k}.data(), m{k}.size() * sizeof(m{k}[0]));")
        given += [f"m{k}.data()", *(str(n) for n, d in zip(array.shape, p.type.shape, strict=True) if not isinstance(d, int))]
    return "\n".join(
        [HEAD, text, READ, "int main() {", *reads, f"  {name}({', '.join(given)});", *writes, "  return 0;", "}", ""]
    )


def compiled(command: str, **names: Path) -> str:
    """The first error of a compiler; nothing when it accepts the source."""
    words = [w.format(**names) for w in shlex.split(command)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    lines = [re.sub(r"^.*/", "", line) for line in done.stderr.splitlines() if "error" in line]
    return lines[0] if lines else f"exit status {done.returncode}"


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
            self.checked(name, program, text, inputs, Path(folder), exact)

    def checked(self, name: str, program: Program, text: str, inputs: Arrays | None, folder: Path, exact: bool) -> None:
        """Compile and compare."""
        source, binary = folder / "kernel.cpp", folder / "kernel"
        arrays = inputs or Inputs((), (), 7).arrays(program)
        arrays = {p.name: np.asarray(arrays[p.name]) for p in program.main.params}
        source.write_text(main_of(program, text, arrays, folder))
        if self.static_cc and (why := compiled(self.static_cc, source=source)):
            self.report.errors[f"{name} (headers)"] = why
        elif not self.cc:
            self.report.right.append(name)
        if not self.cc:
            return
        if why := compiled(self.cc, source=source, binary=binary):
            self.failed(self.report.errors, name, why)
            return
        ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
        if ran.returncode:
            self.report.errors[name] = f"ends with {ran.returncode}: {' '.join(ran.stderr.split())[:200]}"
            return
        expected = execute(program, {k: v.copy() for k, v in arrays.items()}, RunOptions())
        for p in program.main.params:
            if isinstance(p.type, MemRefType):
                got = np.fromfile(folder / f"{p.name}.out", numpy_dtype(p.type.dtype)).reshape(arrays[p.name].shape)
                if why := differs(p.name, got, expected[p.name], exact):
                    self.failed(self.report.wrong, name, why)
                    return
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
