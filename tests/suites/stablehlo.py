"""Tests in a checkout of StableHLO: every function that checks its own values is read, run, and held to them.

They are in no package: `DIR` names the folder `stablehlo/tests/interpret`, or `stablehlo/testdata`.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import ptir_tools as ptir
from ptir_tools.bridges.stablehlo import reader as reading
from ptir_tools.bridges.stablehlo.syntax import Block, FunctionText, ModuleText, parse
from ptir_tools.bridges.stablehlo.table import HANDLERS, Site, entry
from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Function, Literal
from ptir_tools.core.source import Source
from ptir_tools.dialects.ptir.builder.build import Tensor
from tests.suites.report import ENGINES, Report

TOLERANCE = 1e-4
Check = tuple[str, Tensor, Any, float]  # how, what, the wanted literal or tensor, the tolerance


class Checking(reading.Reader):
    """A reader whose functions give what is checked, in order."""

    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        handlers = HANDLERS | {f"check.{name}": entry(getattr(self, f"_{name}")) for name in CHECKS}
        handlers["stablehlo.custom_call"] = entry(self._custom_call, values=True)
        super().__init__(source, diagnostics, Options(), handlers)
        self.compared: list[Check] = []

    def function(self, text: FunctionText, function: Function, block: Any) -> None:
        super().function(text, function, block)
        if not self.diagnostics.errors:
            wanted = [x for _, _, x, _ in self.compared if isinstance(x, Tensor)]
            block.builder.results(*(x.operand for x in [*(c[1] for c in self.compared), *wanted]))

    def _custom_call(self, site: Site, *operands: Any) -> Any:
        name = str(site.value("callee", "")).removeprefix("@check.").replace("eq_approx", "expect_close")
        if name in ("eq", "expect_eq"):
            self._check("equal", *operands)
            return [site.full(True, site.type)] if site.statement.results else []
        if name in ("expect_almost_eq", "expect_close"):
            return self._check("near", *operands)
        return HANDLERS["stablehlo.custom_call"].handler(site, *operands)

    def _check(self, how: str, x: Tensor, wanted: Any, tolerance: float = TOLERANCE) -> list[Any]:
        self.compared.append((how, x, wanted, tolerance))
        return []

    def _expect_eq_const(self, site: Site, x: Tensor) -> list[Any]:
        return self._check("equal", x, site.literal("value", x.tensor_type))

    def _expect_almost_eq_const(self, site: Site, x: Tensor) -> list[Any]:
        return self._check("close", x, site.literal("value", x.tensor_type), float(site.value("tolerance", TOLERANCE)))

    def _expect_eq(self, site: Site, x: Tensor, y: Tensor) -> list[Any]:
        return self._check("equal", x, y)

    def _expect_almost_eq(self, site: Site, x: Tensor, y: Tensor) -> list[Any]:
        return self._check("close", x, y, float(site.value("tolerance", TOLERANCE)))

    def _expect_close(self, site: Site, x: Tensor, y: Tensor) -> list[Any]:
        return self._check("ulp", x, y, float(site.integer("max_ulp_difference", 3)))


CHECKS = ("expect_eq_const", "expect_almost_eq_const", "expect_eq", "expect_almost_eq", "expect_close")


def functions(items: list[Any]) -> Iterator[FunctionText]:
    """The functions of a text, those of its modules included."""
    for item in items:
        if isinstance(item, ModuleText):
            yield from functions(item.content)
        elif isinstance(item, FunctionText):
            yield item


def _names(block: Block | None) -> set[str]:
    return {s.name for s in reading.statements(block)}


def run(part: str = "", every: int = 1, folder: str = "") -> Report:
    """The counts for the functions whose names have `part`, every so many of them."""
    report = Report(f"StableHLO {Path(folder).name}")
    number = 0
    for path in sorted(Path(folder).rglob("*.mlir")):
        for k, section in enumerate(re.split(r"^// -----.*$", path.read_text("utf-8"), flags=re.MULTILINE)):
            diagnostics = Diagnostics()
            source = diagnostics.source = Source(str(path), section)
            if not section.strip():
                continue
            items = parse(source, diagnostics, "SyntaxError")
            if items is None:
                report.errors[f"{path.stem}/{k}"] = next(iter(diagnostics)).message
                continue
            for f in functions(items):
                checks = f.name == "main" or any(name.startswith("check.") for name in _names(f.body))
                if f.params or not checks or part not in f"{path.stem}/{f.name}":
                    continue
                number += 1
                if number % every == 0:
                    _one(f"{path.stem}/{k}/{f.name}", source, items, f, report)
    return report


def _one(name: str, source: Source, items: list[Any], f: FunctionText, report: Report) -> None:
    diagnostics = Diagnostics(source)
    try:
        reader = Checking(source, diagnostics)
        reader.collect(items)
        reader.roots = lambda: [f]  # type: ignore[method-assign]
        program = reader.program()
        diagnostics.raise_if_errors()
        assert program is not None
        ptir.verify(program)
        for engine in ("reference", *ENGINES):
            outputs = list(ptir.run(program, [], engine=engine).values())
            if problem := _difference(reader.compared, outputs):
                report.wrong[name] = f"{engine}: {problem}"
                return
        report.right.append(name)
    except Rejected as error:
        first = error.diagnostics[0]
        report.refused[name] = f"{first.code}: {first.message}"
    except Exception as error:
        report.errors[name] = f"{type(error).__name__}: {error} " + traceback.format_exc().strip().splitlines()[-2]


def _difference(checks: list[Check], outputs: list[Any]) -> str | None:
    others = iter(outputs[len(checks) :])
    for (how, _, wanted, tolerance), found in zip(checks, outputs, strict=False):
        y = arrays.from_literal(wanted) if isinstance(wanted, Literal) else next(others)
        if found.dtype != y.dtype or found.shape != y.shape:
            return f"{found.dtype}{list(found.shape)} is no {y.dtype}{list(y.shape)}"
        if not np.all(right := agree(how, found, y, tolerance)):
            at = tuple(int(i) for i in np.argwhere(~right)[0])
            return f"{np.count_nonzero(~right)} of {right.size} elements, the first at {list(at)}: {found[at]} is not {y[at]}"
    return None


def agree(how: str, x: Any, y: Any, tolerance: float) -> Any:
    """Whether elements are equal, close by their difference or relative to the largest, or few floats apart. NaN is NaN."""
    if x.dtype.kind == "c":
        return agree(how, x.real, y.real, tolerance) & agree(how, x.imag, y.imag, tolerance)
    a, b = arrays.widen(x), arrays.widen(y)
    same = (a == b) | ((a != a) & (b != b))
    if how == "equal" or a.dtype.kind in "iub":
        return same
    if how == "near":
        finite = np.abs(b[np.isfinite(b)])
        scale = float(finite.max()) if finite.size else 1.0
        how, tolerance = "close", 8 * float(ml_dtypes.finfo(x.dtype).eps) * max(scale, float(ml_dtypes.finfo(x.dtype).tiny))
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        return same | (apart <= tolerance if how == "close" else apart <= tolerance * np.spacing(np.abs(y).astype(x.dtype)))
