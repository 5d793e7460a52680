"""Control flow: branches and loops with isolated regions; composites become their decomposition."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.bridges.node import results_of
from ptir_tools.bridges.stablehlo.scopes import Build, Capture, InError, Scope, fits, read_names
from ptir_tools.bridges.stablehlo.syntax import Block
from ptir_tools.bridges.stablehlo.table import CUSTOM, Site, Tensor, handles, refused, refuses
from ptir_tools.bridges.stablehlo.types import UNSUPPORTED
from ptir_tools.core.ir import Function, Region
from ptir_tools.core.types import Type
from ptir_tools.core.violations import Violation, require
from ptir_tools.grammars.parser import Token


@handles("stablehlo.if")
def if_(site: Site, pred: Tensor) -> list[Tensor]:
    """The results of one of two regions."""
    require(len(site.regions) == 2, "OperandCountMismatch", "two regions are expected")
    capture = Capture(site.scope, site.regions)
    return branches(site, site.scope, capture, capture.arguments, pred, None, site.regions)


@handles("stablehlo.case")
def case(site: Site, index: Tensor) -> Sequence[object]:
    """The results of the region that the index selects, or of the last one if the index is out of range."""
    require(bool(site.regions), "OperandCountMismatch", "a region is expected")
    capture = Capture(site.scope, site.regions)
    if len(site.regions) == 1:
        return site.scope.inline(site.regions[0], [])
    pred = index.compare_eq(0)
    return branches(site, site.scope, capture, capture.arguments, pred, index, site.regions)


def branches(
    site: Site,
    scope: Scope,
    capture: Capture,
    arguments: Sequence[Tensor],
    pred: Tensor,
    index: Tensor | None,
    rest: Sequence[Block],
) -> list[Tensor]:
    """The results of the first region if `pred` is true, else of one of the others, selected by `index`."""
    if scope.lift is not None:
        raise refused("a branch inside a computation on scalars")
    given = [*arguments] if len(rest) == 2 or index is None else [index, *arguments]
    types = [x.type for x in given]
    own = len(given) - len(arguments)

    def first(inner: Scope, params: list[Tensor]) -> Sequence[object]:
        capture.bind(inner, params[own:])
        return inner.inline(rest[0], [])

    def others(inner: Scope, params: list[Tensor]) -> Sequence[object]:
        if len(rest) == 2:
            capture.bind(inner, params[own:])
            return inner.inline(rest[1], [])
        number = params[0]
        k = len(site.regions) - len(rest) + 1
        one = inner.block.constant(k, number.dtype)
        return branches(site, inner, capture, params[1:], number.compare_eq(one), number, rest[1:])

    regions = both_regions(scope, types, (first, others))
    result = scope.block.op("cond", pred, given, regions=regions)
    return results_of(result)


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
def while_(site: Site, *operands: object) -> list[object]:
    """A while loop. Captured values are carried, captured constants are rematerialized inside."""
    require(len(site.regions) == 2, "OperandCountMismatch", "a condition and a body are expected")
    scope = site.scope
    if scope.lift is not None:
        raise refused("a loop inside a computation on scalars")
    if any(isinstance(x, tuple) for x in operands):
        raise refused("a tuple is carried")
    carried = [x for x in operands if isinstance(x, Tensor)]
    names = [b.first for b in site.bindings]
    regions = []
    for region in site.regions:
        bound = names or [p.name for p in region.params if p.name is not None]
        require(
            len(bound) == len(operands), "OperandCountMismatch", f"{len(operands)} values are carried, {len(bound)} are named"
        )
        regions.append((region, bound))
    capture = Capture(scope, site.regions, [name[1:] for name in names])
    types = [x.type for x in (*carried, *capture.arguments)]

    def inside(inner: Scope, params: list[Tensor], region: Block, bound: Sequence[Token]) -> list[object]:
        capture.bind(inner, params[len(carried) :])
        values = iter(params)
        for name, x in zip(bound, operands, strict=True):
            inner.values[name[1:]] = [next(values) if isinstance(x, Tensor) else x]
        return inner.body(region)

    def condition(inner: Scope, params: list[Tensor]) -> Sequence[object]:
        flag = inside(inner, params, *regions[0])
        kinds = [str(x.type) if isinstance(x, Tensor) else "no tensor" for x in flag]
        require(
            kinds == ["tensor<i1>"], "RegionSignatureMismatch", f"the condition returns {', '.join(kinds)}, expected tensor<i1>"
        )
        return [flag[0], *params]

    def body(inner: Scope, params: list[Tensor]) -> Sequence[object]:
        result = inside(inner, params, *regions[1])
        end = regions[1][0].body[-1]
        if len(result) != len(operands):
            message = f"the body returns {len(result)} of the {len(operands)} values that the loop carries"
            raise Violation("RegionSignatureMismatch", message, loc=end.at.loc)
        for token, x, y in zip(read_names(end.pieces), result, operands, strict=True):
            if isinstance(x, Tensor) and isinstance(y, Tensor) and not fits(y.type, x.type):
                message = f"`{token}` is {x.type}, and the loop carries {y.type}"
                raise Violation("RegionSignatureMismatch", message, loc=token.loc)
        return [*(x for x in result if isinstance(x, Tensor)), *params[len(carried) :]]

    both = both_regions(scope, types, (condition, body))
    result = iter(results_of(scope.block.op("while", [*carried, *capture.arguments], regions=both)))
    return [next(result) if isinstance(x, Tensor) else x for x in operands]


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
