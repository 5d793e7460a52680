"""Options of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from ptir_tools.core.diagnostics import UsageError, unknown_name
from ptir_tools.core.dialect import Options, Timeline
from ptir_tools.core.ir import Op
from ptir_tools.core.limits import Limits, current
from ptir_tools.core.records import dataclass, field, replace
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.engines.sinks import TraceSink
from ptir_tools.passes import PassContext

if TYPE_CHECKING:
    from ptir_tools.bridges.xla.hosts import Hosts
    from ptir_tools.core.evaluate import Data
    from ptir_tools.plan.mesh import Sharding

OWN = ("reference", "numpy", "native")  # engines that need no other package
ENGINES = (*OWN, "xla")
CHECKED = ("numpy", "native")  # engines whose memory is planned, and can be checked
SPREADS = "xla"  # the engine that runs on several devices
PEERS = ("onnxruntime",)  # a peer for comparisons; it runs the file from which the program was read
ORDERS = ("sequential", "adversarial", "random")
UNDEF = ("error", "nan", "zero", "random")


def poisons() -> bool:
    """Whether the environment turns poison on."""
    return os.environ.get("PTIR_POISON", "") not in ("", "0")


def engine_of(name: str) -> str:
    """The name of an engine, as the user wrote it. Raises ValueError."""
    if name not in ENGINES:
        raise ValueError(f"`{name}` is none of {', '.join(ENGINES)}")
    return name


@dataclass(slots=True, frozen=True)
class RunOptions:
    """How to execute. Every field has the default of the command line.

    `engine` auto is the fastest that supports the program. `observe(op, results)` is called for every op that ran. `timer(ops,
    start, end)` is called for every step as it ran, fused ops as one, in the seconds of `time.perf_counter`. `function` None is
    the entry. `order` and `undef` are PTO's: how unawaited ops complete (sequential, adversarial, random) and what storing an
    undefined element does (error, nan, zero, random). `chosen` are the options of the program's dialect. `timeline` is a record
    of the program's dialect that its executor fills. `timeout` is in seconds and checked between ops. `passes` is for the passes
    that an engine runs first: their hooks and statistics are the caller's; what rewrites may change is still decided by
    `strict_fp`. `trace` gets the events of the run. With `poison` the engines numpy and native overwrite dead memory after each
    step, and check that inputs and constants stay as they are; by default with the environment's PTIR_POISON=1. `sharding`
    spreads the run over devices, on the engine `xla`, and `hosts` over processes that each have some of them.

    Raises UsageError for an unknown engine, order or `undef`.
    """

    engine: str = "auto"
    function: str | None = None
    seed: int = 0
    threads: int = 0  # 0: one per core
    limits: Limits = field(default_factory=current)
    strict_fp: bool = False
    bindings: Mapping[str, int] = field(default_factory=dict)
    order: str = "sequential"
    undef: str = "error"
    chosen: Options = field(default_factory=Options)
    timeline: Timeline | None = None
    observe: Callable[[Op, tuple[Data, ...]], None] | None = None
    timer: Callable[[Sequence[Op], float, float], None] | None = None
    timeout: float | None = None
    passes: PassContext | None = None
    trace: TraceSink | None = None
    sharding: Sharding | None = None
    hosts: Hosts | None = None
    poison: bool = field(default_factory=poisons)

    def on(self, engine: str) -> RunOptions:
        """These options for another engine, on one device."""
        return replace(self, engine=engine, sharding=None, hosts=None)

    def __post_init__(self) -> None:
        for what, known in (("engine", ("auto", *ENGINES)), ("order", ORDERS), ("undef", UNDEF)):
            if (given := getattr(self, what)) not in known:
                raise unknown_name(what, given, known)
        if self.sharding is not None and self.engine not in ("auto", SPREADS):
            raise UsageError(f"engine `{self.engine}` runs on one device: a mesh is for `{SPREADS}`")
        if self.hosts is not None and self.sharding is None:
            raise UsageError("several hosts need a mesh of all their devices: --mesh x=4,y=2")
