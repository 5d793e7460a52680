"""The checks of a whole PTO program in `verify`, after those of each op: calls, the target, order."""

from __future__ import annotations

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Function, Op, operand_type
from ptir_tools.core.violations import Violation, operand, operands, require, result
from ptir_tools.dialects.pto import FORMS, HAZARDS, MOST_CORES, ROOM, fifos, legality
from ptir_tools.dialects.pto.memory import bounds, capacity, info
from ptir_tools.dialects.pto.order import hazards
from ptir_tools.dialects.pto.structure import BLOCK_DIM
from ptir_tools.dialects.pto.targets import target_of
from ptir_tools.dialects.pto.types import type_text


def check(program: Program, diagnostics: Diagnostics, options: Options) -> None:
    """Check that calls match their callee, both sides of FIFOs agree, every tile has one location, windows are in bounds, the
    target allows every op, and accesses are ordered."""
    before = diagnostics.errors
    calls(program, diagnostics)
    for op, violation in fifos.check(program):
        diagnostics.violation(violation, op.loc, op)
    for op, said in fifos.too_large(program):
        diagnostics.warning("CapacityExceeded", said, op.loc, help="the next tile would be written over its end")
    for function in program.functions:
        launch(program, function, diagnostics)
    target = target_of(program, options, diagnostics)
    tiles = {f: info.infer(f, target) for f in program.functions}
    clashing = set[Op]()
    for function in program.functions:
        clashing |= info.check(function, tiles[function], diagnostics)
        bounds.check(function, diagnostics)
    if target is not None:
        for function in program.functions:
            at = diagnostics.errors
            legality.check(function, target, tiles[function], diagnostics, forms=options[FORMS], apart=clashing)
            if diagnostics.errors == at:
                capacity.check(function, target, tiles[function], diagnostics, warn=not options[ROOM])
    if options[HAZARDS] and diagnostics.errors == before:
        with collector_paused():
            hazards.check(program, diagnostics, target)


def launch(program: Program, function: Function, diagnostics: Diagnostics) -> None:
    """Check that a function can be launched on as many cores as it says: it returns nothing, and no core has others behind it."""
    stated = function.attrs.get(BLOCK_DIM, "1")
    number = str(stated).partition(":")[0].strip()
    if not number.isdecimal() or not 1 <= int(number) <= MOST_CORES:
        message = f"{BLOCK_DIM} is {stated}, must be a number of cores from 1 to {MOST_CORES}"
        diagnostics.error("TypeMismatch", message, function.loc)
    elif int(number) > 1 and function.results:
        diagnostics.error("TypeMismatch", f"@{function.name} is launched on several cores, and returns values", function.loc)
    elif int(number) > 1 and fifos.users(program):
        message = f"@{function.name} is launched on several cores, and passes tiles through FIFOs"
        diagnostics.error(
            "IllegalOnTarget", message, function.loc, help="launch it on one, which has a cube core and two vector cores"
        )


def check_elements(program: Program, diagnostics: Diagnostics, options: Options) -> None:
    """Check that the target has the element types of every op that has no error. An op with an error makes values with errors."""
    if (target := target_of(program, options, diagnostics)) is not None:
        for function in program.functions:
            legality.check_elements(function, target, diagnostics)


def calls(program: Program, diagnostics: Diagnostics) -> None:
    """Check that every call names a function with its signature, and that no function calls itself, directly or through
    others."""
    graph: dict[str, set[str]] = {}
    for function in program.functions:
        for op in function.ops():
            if op.name != "pto.func.call":
                continue
            try:
                _call(op, program.function(op.attr("callee")))
                graph.setdefault(function.name, set()).add(op.attr("callee"))
                require(not _reaches(graph, op.attr("callee"), function.name), "RecursiveCall", f"@{function.name} calls itself")
            except Violation as violation:
                diagnostics.violation(violation, op.loc, op)


def _call(op: Op, callee: Function | None) -> None:
    if callee is None:
        raise Violation("UndefinedValue", f"there is no function @{op.attr('callee')}", at=f"@{op.attr('callee')}")
    takes, gives = [p.type for p in callee.params], callee.result_types
    given, taken = [operand_type(x) for x in op.operands], op.attr("to")
    for what, mine, theirs in (("arguments", given, takes), ("results", taken, gives)):
        same = len(mine) == len(theirs)
        require(same, "TypeMismatch", f"@{callee.name} has {len(theirs)} {what}, the call {len(mine)}", at=operands())
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            wrong = f"{what}[{i}] is {type_text(a)}, @{callee.name} has {type_text(b)}"
            require(b.accepts(a), "TypeMismatch", wrong, at=operand(i) if what == "arguments" else result(i))


def _reaches(graph: dict[str, set[str]], start: str, goal: str) -> bool:
    seen, stack = set[str](), [start]
    while stack:
        name = stack.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            stack.extend(graph.get(name, ()))
    return False
