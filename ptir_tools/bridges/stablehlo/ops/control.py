"""Control flow: branches and loops with isolated regions; composites become their decomposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from ptir_tools.bridges.node import results_of
from ptir_tools.bridges.stablehlo.scopes import Build, Capture, InError, Scope, fits, read_names
from ptir_tools.bridges.stablehlo.syntax import Block, Statement
from ptir_tools.bridges.stablehlo.table import CUSTOM, Site, Tensor, handles, refused, refuses
from ptir_tools.bridges.stablehlo.types import UNSUPPORTED
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Function, Region
from ptir_tools.core.types import Type
from ptir_tools.core.violations import Violation, require
from ptir_tools.grammars.parser import Token

Rows = Sequence[Sequence[object]]  # values of each device; of a program for one device there is one row


def one_by_one(scopes: Sequence[Scope], region: Block) -> Rows:
    """The results of a region on each device. Raises InError, Violation."""
    return [scope.body(region) for scope in scopes]


class Regions:
    """The regions of an op, read for all devices together by `read`. Their parameters are those that each device carries, then
    what each captures."""

    def __init__(
        self,
        sites: Sequence[Site],
        rows: Rows,
        read: Callable[[Sequence[Scope], Block], Rows] = one_by_one,
        bound: Sequence[str] = (),
    ) -> None:
        if sites[0].scope.lift is not None:
            raise refused("a branch or a loop inside a computation on scalars")
        self.sites, self.rows, self.read = sites, rows, read
        self.captures = [Capture(site.scope, site.regions, bound) for site in sites]
        self.own = _tensors(rows)
        self.arguments = [*self.own, *(x for capture in self.captures for x in capture.arguments)]

    def results(self, inner: Scope, params: Sequence[Tensor], region: Block, bound: Sequence[Token] = ()) -> Rows:
        """The results of a region on each device; `bound` are the names of what is carried. Raises InError, Violation."""
        scopes, own, at = list[Scope](), iter(params), len(self.own)
        for site, row, capture in zip(self.sites, self.rows, self.captures, strict=True):
            scope = inner if len(self.sites) == 1 else Scope(inner.reader, inner.block, inner)
            scope.device = site.scope.on_device
            capture.bind(scope, params[at : at + len(capture.arguments)])
            at += len(capture.arguments)
            if not row:
                scope.parameters(region.params, [])
            for name, x in zip(bound, row, strict=True):
                scope.values[name[1:]] = [next(own) if isinstance(x, Tensor) else x]
            scopes.append(scope)
        return self.read(scopes, region)


def _tensors(rows: Rows) -> list[Tensor]:
    return [x for row in rows for x in row if isinstance(x, Tensor)]


@handles("stablehlo.if")
def if_(site: Site, pred: Tensor) -> Sequence[object]:
    """The results of one of two regions."""
    require(len(site.regions) == 2, "OperandCountMismatch", "two regions are expected")
    return chosen(Regions([site], [[]]), pred)


@handles("stablehlo.case")
def case(site: Site, index: Tensor) -> Sequence[object]:
    """The results of the region that the index selects, or of the last one if the index is out of range."""
    require(bool(site.regions), "OperandCountMismatch", "a region is expected")
    if len(site.regions) == 1:
        return site.scope.inline(site.regions[0], [])
    return chosen(Regions([site], [[]]), index)


def chosen(regions: Regions, selector: Tensor) -> list[Tensor]:
    """The results, device by device, of the region that a truth value or an index selects."""
    blocks = regions.sites[0].regions

    def choice(scope: Scope, arguments: Sequence[Tensor], index: Tensor, at: int) -> list[Tensor]:
        """The results of region `at` or of one after it."""
        last = at + 2 == len(blocks)
        given = [*arguments] if last else [index, *arguments]

        def first(inner: Scope, params: list[Tensor]) -> list[object]:
            return _joined(regions.results(inner, params[len(given) - len(arguments) :], blocks[at]))

        def others(inner: Scope, params: list[Tensor]) -> Sequence[object]:
            if last:
                return _joined(regions.results(inner, params, blocks[at + 1]))
            return choice(inner, params[1:], params[0], at + 1)

        pred = index if index.dtype is I1 else index.compare_eq(at)
        both = both_regions(scope, [x.type for x in given], (first, others))
        return results_of(scope.block.op("cond", pred, given, regions=both))

    return choice(regions.sites[0].scope, regions.arguments, selector, 0)


def _joined(rows: Rows) -> list[object]:
    return [x for row in rows for x in row]


def both_regions(scope: Scope, types: Sequence[Type], builds: Sequence[Build]) -> list[Region]:
    """Read both regions, then raise the errors of either. Raises InError."""
    made: list[Region] = []
    for build in builds:
        try:
            made.append(scope.region(types, build))
        except InError:
            continue
    if len(made) < len(builds):
        raise InError
    return made


@handles("stablehlo.while", values=True)
def while_(site: Site, *operands: object) -> Sequence[object]:
    """A while loop. Captured values are carried, captured constants are rematerialized inside."""
    return loop([site], [operands])[0]


def loop(
    sites: Sequence[Site],
    rows: Rows,
    read: Callable[[Sequence[Scope], Block], Rows] = one_by_one,
    agreed: Callable[[list[Tensor]], Tensor] = itemgetter(0),
) -> list[list[object]]:
    """The results of a while loop on each device. It goes on while the truth value holds that is `agreed` by the devices. Raises
    InError, Violation."""
    require(len(sites[0].regions) == 2, "OperandCountMismatch", "a condition and a body are expected")
    if any(isinstance(x, tuple) for row in rows for x in row):
        raise refused("a tuple is carried")
    names, count = [b.first for b in sites[0].bindings], len(rows[0])
    bounds = [names or [p.name for p in region.params if p.name is not None] for region in sites[0].regions]
    for bound in bounds:
        require(len(bound) == count, "OperandCountMismatch", f"{count} values are carried, {len(bound)} are named")
    regions = Regions(sites, rows, read, [name[1:] for name in names])
    test, step = sites[0].regions

    def condition(inner: Scope, params: list[Tensor]) -> Sequence[object]:
        flags = regions.results(inner, params, test, bounds[0])
        for row in flags:
            kinds = [str(x.type) if isinstance(x, Tensor) else "no tensor" for x in row]
            message = f"the condition returns {', '.join(kinds)}, expected tensor<i1>"
            require(kinds == ["tensor<i1>"], "RegionSignatureMismatch", message)
        return [agreed(_tensors(flags)), *params]

    def body(inner: Scope, params: list[Tensor]) -> Sequence[object]:
        made = regions.results(inner, params, step, bounds[1])
        for row, carried in zip(made, rows, strict=True):
            _check_carried(row, carried, step.body[-1])
        return [*_tensors(made), *params[len(regions.own) :]]

    scope = sites[0].scope
    both = both_regions(scope, [x.type for x in regions.arguments], (condition, body))
    results = iter(results_of(scope.block.op("while", regions.arguments, regions=both)))
    return [[next(results) if isinstance(x, Tensor) else x for x in row] for row in rows]


def _check_carried(returned: Sequence[object], carried: Sequence[object], end: Statement) -> None:
    """Raise Violation unless a body, which ends with `end`, returns what the loop carries."""
    if len(returned) != len(carried):
        message = f"the body returns {len(returned)} of the {len(carried)} values that the loop carries"
        raise Violation("RegionSignatureMismatch", message, loc=end.at.loc)
    for token, x, y in zip(read_names(end.pieces), returned, carried, strict=True):
        if isinstance(x, Tensor) and isinstance(y, Tensor) and not fits(y.type, x.type):
            message = f"`{token}` is {x.type}, and the loop carries {y.type}"
            raise Violation("RegionSignatureMismatch", message, loc=token.loc)


@handles("stablehlo.composite", values=True)
def composite(site: Site, *operands: object) -> list[object]:
    """The decomposition of a composite."""
    return site.scope.reader.inlined(str(site.value("decomposition"))[1:].strip('"'), operands, site.scope)


_IDENTITIES = ("Sharding", "annotate_device_placement", "LayoutConstraint", "mhlo.sharding", "xla.sdy.FuncResultSharding")


@handles("stablehlo.custom_call", values=True)
def custom_call(site: Site, *operands: object) -> object:
    """Custom calls that are the identity; others are refused by name."""
    written = str(site.value("callee", None) or site.value("call_target_name")).strip('"')
    target = written.lstrip("@").strip('"')
    if target in _IDENTITIES and len(operands) == 1:
        return list(operands)
    if target == "shape_assertion":  # JAX, about extents
        asserted(site, next(site.each(operands[:1])))
        return []
    if target in CUSTOM:
        return CUSTOM[target](site, *site.each(operands))
    if "callback" in target:
        raise refused(f"`{target}` calls a function of the process that wrote the program, such as one of Python")
    raise Violation(UNSUPPORTED, f"PTIR does not know what `{target}` does", at=written)


def asserted(site: Site, flag: Tensor) -> None:
    """An assertion of JAX. Types imply it from now on, or the program checks it. Raises Violation if it never holds."""
    elements = site.symbolic.of(flag)
    holds = None if elements is None or elements.size != 1 else elements.reshape(-1)[0]
    if holds is True:
        return
    text = str(site.value("error_message", "")).strip('"')
    if holds is False:
        raise refused(f"an assertion does not hold: {text}")
    if site.scope.lift is not None:
        raise refused(f"an assertion inside a computation on scalars: {text}")
    everywhere = isinstance(site.block.region, Function)  # an assertion in a branch may fail if the branch is not taken
    if not (everywhere and site.symbolic.asserted(flag)):
        site.scope.reader.checks.add(flag)


_DEVICES = (
    "all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "collective_reduce",
    "recv", "reduce_scatter", "replica_id", "send", "async_start", "async_done", "cross-replica-sum",
)  # fmt: skip
refuses("PTIR programs run on one device", *(f"stablehlo.{name}" for name in _DEVICES), "interpreter.run_parallel")
refuses("PTIR programs read and write nothing but their inputs and outputs", "stablehlo.infeed", "stablehlo.outfeed")


@handles("stablehlo.uniform_quantize", "stablehlo.uniform_dequantize")
def between_floats(site: Site, x: Tensor) -> Tensor:
    """The operand itself; `quantized` handles quantized operands."""
    return x
