"""The time of each step of a run as it was executed: as a table, JSON, a Chrome trace, and a flame graph."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

from ptir_tools.core import costs
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op, Value, operand_type
from ptir_tools.core.lazy import late, np
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import TypeVar
from ptir_tools.engines.native import library, threads

escape = late("html", "escape")

COLUMNS = ("us", "share", "calls", "GFLOP/s", "GB/s", "roof", "step", "values", "line")
T = TypeVar("T")
_NAMES = 4  # ops of a fused step that are named
_OTHER = "(between steps)"
_PRODUCT = 512  # extents of the product that measures the roof
_FAR = 16 << 20  # bytes of arrays that do not fit the caches


@dataclass(slots=True)
class Step:
    """A step of a run: an op, or fused ops. `seconds` are the times of its calls, without steps inside it."""

    ops: tuple[Op, ...]
    seconds: list[float] = field(default_factory=list)

    @property
    def flops(self) -> int:
        """The arithmetic of one call; 0 where it depends on values."""
        return sum(costs.operations(op).value or 0 for op in self.ops)

    @property
    def bytes(self) -> int:
        """The bytes that one call reads and writes outside the step."""
        inside = {v for op in self.ops for v in op.results}
        read = {x: None for op in self.ops for x in op.operands if not isinstance(x, Value) or x not in inside}
        used = {x for op in self.ops for x in op.operands}
        written = [v.type for v in inside if v not in used or v in self.ops[-1].results]
        return costs.size(*map(operand_type, read), *written).value or 0


@dataclass(slots=True, frozen=True)
class Roof:
    """The limits of this machine per second: operations of an f32 product, and bytes of a copy, of arrays that fit the caches
    (`near`) and of larger ones (`far`)."""

    flops: float
    near: float
    far: float

    def share(self, step: Step) -> float | None:
        """The time of the step at the roof, divided by its time; None if its work is not known."""
        bandwidth = self.far if step.bytes > _FAR else self.near
        least = max(step.flops / self.flops, step.bytes / bandwidth) * len(step.seconds)
        spent = sum(step.seconds)
        return least / spent if least and spent else None


def roof() -> Roof:
    """Measure the roof of this machine in some tenths of a second: a product by NumPy or by the kernels, copies by NumPy."""
    x = np.ones((_PRODUCT, _PRODUCT), np.float32)
    out = np.empty_like(x)
    products: list[Callable[[], object]] = [lambda: np.matmul(x, x, out=out)]
    if library.available():
        kernels, workers = library.kernels(), threads.count(0)
        rooms = [(s, np.empty(kernels.GEMM_SCRATCH, np.float32)) for s in threads.cuts(_PRODUCT, workers)]
        parts = [(kernels.gemm, (out[None, s], x[None, s], x[None], room)) for s, room in rooms]
        products.append(lambda: [function(*arguments) for function, arguments in threads.together(parts, workers)])

    def copied(size: int, times: int) -> float:
        a, b = np.ones(size, np.uint8), np.empty(size, np.uint8)
        return 2 * size / _quickest(lambda: np.copyto(b, a), times)

    flops = 2 * _PRODUCT**3 / min(_quickest(product, 5) for product in products)
    return Roof(flops, copied(_FAR // 32, 50), copied(2 * _FAR, 4))


def _quickest(call: Callable[[], object], times: int) -> float:
    """The seconds of the quickest of `times` calls."""
    best = math.inf
    for _ in range(times):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


_WIDE, _TALL, _LETTER = 1200, 18, 7.3  # of a flame graph, a frame and a letter
_FLAMES = ("#f4b183", "#f7cf87", "#e99a76", "#f2bd9a")


@dataclass(slots=True, eq=False)
class _Frame:
    """A step of a flame graph, or all steps of one kind, with what is inside."""

    title: str
    seconds: float = 0.0
    inside: dict[Hashable, _Frame] = field(default_factory=dict)

    def get(self, key: Hashable, title: str) -> _Frame:
        return self.inside.setdefault(key, _Frame(title))

    def depth(self) -> int:
        return 1 + max((f.depth() for f in self.inside.values()), default=0)

    def drawn(self, x: float, level: int, scale: float, whole: float) -> Iterator[str]:
        """The frame from `x` on, with the frames inside it below."""
        wide = self.seconds * scale
        label = f"{self.title}: {self.seconds * 1e6:.1f} us, {self.seconds / (whole or 1.0):.1%}"
        room = int((wide - 6) / _LETTER)
        shown = self.title if len(self.title) <= room else f"{self.title[: room - 1]}…" if room > 3 else ""
        color = _FLAMES[level % len(_FLAMES)]
        yield f'<g><title>{escape(label)}</title><rect x="{x:.2f}" y="{level * _TALL}" width="{wide:.2f}" height="{_TALL - 1}"'
        yield f' fill="{color}" stroke="#fff" stroke-width=".5"/><text x="{x + 3:.2f}" y="{level * _TALL + 13}">{escape(shown)}'
        yield "</text></g>\n"
        for frame in sorted(self.inside.values(), key=lambda f: -f.seconds):
            yield from frame.drawn(x, level + 1, scale, whole)
            x += frame.seconds * scale


class Profile:
    """Records the time of steps (`step`, as in `RunOptions.timer`) and of complete runs. Earlier work is the warm-up."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.spans: list[tuple[tuple[Op, ...], float, float, float]] = []  # ops, start, end, seconds of steps inside
        self.inside: list[tuple[float, float]] = []  # start and end of the steps that a running step may contain
        self.runs: list[float] = []
        self.warm_up = 0.0
        self.roof: Roof | None = None  # of this machine, if measured
        self.counting = False

    def warmed(self, run: Callable[[], T]) -> T:
        """The result of `run`; its time is that of the warm-up."""
        start = time.perf_counter()
        result = run()
        self.warm_up += time.perf_counter() - start
        return result

    @contextmanager
    def run(self) -> Iterator[None]:
        """Around one execution of the program."""
        self.counting = True
        start = time.perf_counter()
        yield
        self.runs.append(time.perf_counter() - start)
        self.counting = False

    def step(self, ops: Sequence[Op], start: float, end: float) -> None:
        """Record a step from `start` to `end`. Steps inside it were recorded before."""
        if not self.counting:
            return
        within = 0.0
        while self.inside and self.inside[-1][0] >= start:
            first, last = self.inside.pop()
            within += last - first
        self.inside.append((start, end))
        self.spans.append((tuple(ops), start, end, within))

    def steps(self) -> list[Step]:
        """The steps, the slowest first."""
        by_ops: dict[tuple[Op, ...], Step] = {}
        for ops, start, end, within in self.spans:
            by_ops.setdefault(ops, Step(ops)).seconds.append(end - start - within)
        return sorted(by_ops.values(), key=lambda s: -sum(s.seconds))

    def rows(self) -> list[tuple[str, ...]]:
        """The cells under `COLUMNS`: microseconds per run. The last row is the time outside the steps."""
        runs, whole = len(self.runs) or 1, sum(self.runs) or 1.0
        rows = []
        steps = self.steps()
        for s in steps:
            spent = sum(s.seconds)
            calls = f"{len(s.seconds) / runs:g}"
            share = self.roof.share(s) if self.roof else None
            rates = (_rate(s.flops, s.seconds), _rate(s.bytes, s.seconds), "" if share is None else f"{share:.0%}")
            rows.append((f"{spent / runs * 1e6:.1f}", f"{spent / whole:.1%}", calls, *rates, *self._shown(s.ops)))
        other = max(whole - sum(sum(s.seconds) for s in steps), 0.0)
        return [*rows, (f"{other / runs * 1e6:.1f}", f"{other / whole:.1%}", "", "", "", "", _OTHER, "", "")]

    def per_run(self) -> tuple[str, ...]:
        """The last row: the median of the runs, their spread, and the warm-up."""
        runs = sorted(self.runs)
        spread = f" (least {runs[0] * 1e6:.1f}, most {runs[-1] * 1e6:.1f})" if len(runs) > 1 else ""
        warm = f", warm-up {self.warm_up * 1e3:.1f} ms" if self.warm_up else ""
        return f"{percentile(runs, 50) * 1e6:.1f}", "", "", "", "", "", f"per run{spread}{warm}", "", ""

    def _shown(self, ops: Sequence[Op]) -> tuple[str, str, str]:
        names = [op.defn.short for op in ops]
        what = "+".join(names if len(names) <= _NAMES else [*names[: _NAMES - 1], f"{len(names) - _NAMES + 1} more"])
        lines = sorted({line for op in ops if (line := self._line(op))})
        where = "" if not lines else f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]}-{lines[-1]}"
        return what, ", ".join(f"%{v.name}" for v in ops[-1].results), where

    def _line(self, op: Op) -> int:
        source = self.program.source
        span = source.span(op.loc) if source else None
        return source.position(span.start)[0] if source and span else 0

    def record(self) -> dict[str, object]:
        """The profile as plain data. Times are seconds; `steps` and `other_s` are sums over all runs."""
        steps = []
        for s in self.steps():
            what, values, where = self._shown(s.ops)
            about = {"step": what, "ops": [op.defn.short for op in s.ops], "values": values, "line": where}
            cost: dict[str, float | None] = {"flops_per_call": s.flops, "bytes_per_call": s.bytes}
            if self.roof is not None:
                cost["roof_share"] = self.roof.share(s)
            steps.append({**about, "calls": len(s.seconds), "seconds": sum(s.seconds), **cost})
        whole = sum(self.runs)
        return {
            "runs": len(self.runs),
            "warm_up_s": self.warm_up,
            "wall_s": whole,
            **({"roof": {"flops": r.flops, "near_bytes": r.near, "far_bytes": r.far}} if (r := self.roof) is not None else {}),
            "median_run_s": percentile(sorted(self.runs), 50),
            "steps": steps,
            "other_s": max(whole - sum(sum(s.seconds) for s in self.steps()), 0.0),
        }

    def chrome_trace(self) -> dict[str, object]:
        """The runs for about://tracing and Perfetto."""
        return {"traceEvents": list(self._events())}

    def flame_graph(self) -> Iterator[str]:
        """The runs as one SVG: the kinds of steps, below each its steps, below a step those inside it; the slowest first."""
        root = _Frame("runs", sum(self.runs))
        stack: list[tuple[float, _Frame]] = []
        for ops, start, end, _ in sorted(self.spans, key=lambda span: (span[1], -span[2])):
            while stack and stack[-1][0] <= start:
                stack.pop()
            what, *where = self._shown(ops)
            kind = (stack[-1][1] if stack else root).get(what, what)
            kind.seconds += end - start
            frame = kind.get(ops, " ".join(filter(None, where)))
            frame.seconds += end - start
            stack.append((end, frame))
        depth = root.depth()
        yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{depth * _TALL}"'
        yield f' font-family="monospace" font-size="12">\n<rect width="{_WIDE}" height="{depth * _TALL}" fill="white"/>\n'
        yield from root.drawn(0.0, 0, _WIDE / (root.seconds or 1.0), root.seconds)
        yield "</svg>\n"

    def _events(self) -> Iterator[dict[str, object]]:
        zero = min((start for _, start, _, _ in self.spans), default=0.0)
        for ops, start, end, _ in self.spans:
            what, values, where = self._shown(ops)
            yield {
                "name": what,
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": (start - zero) * 1e6,
                "dur": (end - start) * 1e6,
                "args": {"value": values, "line": where},
            }


def _rate(amount: int, seconds: Sequence[float]) -> str:
    spent = sum(seconds)
    return f"{amount * len(seconds) / spent / 1e9:.2f}" if amount and spent > 0 else ""


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the sorted values are, by the nearest rank; NaN for no values."""
    return ordered[max(math.ceil(percent / 100 * len(ordered)) - 1, 0)] if ordered else math.nan
