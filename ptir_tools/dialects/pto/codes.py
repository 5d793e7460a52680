"""Every diagnostic code of PTO, with a wrong and a right program each, for `ptir explain`."""

from __future__ import annotations

from textwrap import indent

from ptir_tools.core.dialect import Code

_PARAMETERS = "%a: pto.memref<32x32xf32>, %out: pto.memref<32x32xf32>, %n: index"
_LOAD = "%t = pto.tile.load %a[%c0, %c0] : pto.memref<32x32xf32>, tile<32x32xf32>"
_STORE = "pto.tile.store %t, %out[%c0, %c0] : pto.memref<32x32xf32>, tile<32x32xf32>"
_TLOAD, _TADD, _TSTORE = (f"!pto.event<producer = #pto.op<{op}>>" for op in ("TLOAD", "TADD", "TSTORE_VEC"))
_LOAD_ASYNC = f"%t, %e = pto.tile.load %a[%c0, %c0] : pto.memref<32x32xf32>, tile<32x32xf32>, {_TLOAD}"
_STORE_ASYNC = f"%f = pto.tile.store %t, %out[%c0, %c0] wait(%e) : pto.memref<32x32xf32>, tile<32x32xf32>, {_TSTORE}"


def _program(*lines: str, target: str = "", parameters: str = _PARAMETERS) -> str:
    """A module of one function with these lines."""
    attributes = f" attributes {{ pto.target = #pto.target<{target}> }}" if target else ""
    body = indent("\n".join(("%c0 = pto.constant 0 : index", *lines, "return")), "    ")
    return f"module{attributes} {{\n  func.func @f({parameters}) {{\n{body}\n  }}\n}}\n"


def _code(code: str, meaning: str, wrong: str, right: str) -> Code:
    return Code(code, meaning, wrong, right, "pto")


_GOOD = _program(_LOAD, _STORE)
_BOUND_TWICE = (
    "pto.tile.assign %t, %c0 : tile<32x32xf32>, index", "%c8 = pto.constant 8192 : index",
    "pto.tile.assign %t, %c8 : tile<32x32xf32>, index",
)  # fmt: skip
_LEFT, _RIGHT, _ACC = (
    f"tile<16x16x{t}, #pto.tile_info<loc={loc}>>" for loc, t in (("Left", "f16"), ("Right", "f16"), ("Acc", "f32"))
)
_WIDE = "%m: pto.memref<1024x128xf32>, %out: pto.memref<512x128xf32>"


def _wide(rows: int) -> str:
    types = f"pto.memref<1024x128xf32>, tile<{rows}x128xf32>"
    store = f"pto.tile.store %t, %out[%c0, %c0] : pto.memref<512x128xf32>, tile<{rows}x128xf32>"
    return _program(f"%t = pto.tile.load %m[%c0, %c0] : {types}", store, target="a3", parameters=_WIDE)


def _two_loads(first: int, second: int) -> str:
    """A program with two asynchronous loads and a sync for both."""
    events = [f"!pto.event<producer = #pto.op<TLOAD>, eid = {eid}>" for eid in (first, second)]
    types = "pto.memref<32x32xf32>, tile<32x32xf32>"
    loads = (f"%t{k}, %e{k} = pto.tile.load %a[%c0, %c0] : {types}, {e}" for k, e in enumerate(events))
    return _program(*loads, *(f"pto.sync wait(%e{k}) : {e}" for k, e in enumerate(events)))


def _two_tiles(second: int) -> str:
    """A program with two tiles, the first at address 0 and still used when the second is written."""
    binds = (f"%b{k} = pto.constant {at} : index\npto.tile.assign %{t}, %b{k} : tile<32x32xf32>, index" for k, t, at in
             ((0, "t", 0), (1, "u", second)))  # fmt: skip
    first, second_bind = binds
    return _program(_LOAD, first, _LOAD.replace("%t", "%u"), second_bind, "%v = pto.tile.add %t, %u : tile<32x32xf32>")


_FOR_TARGET = 'module attributes {{pto.target = "{}"}} {{\n  func.func @f() {{\n    return\n  }}\n}}\n'.format
_DIVIDED = (
    "func.func @f() {{\n  %c1 = pto.constant 1 : index\n  %c = pto.constant {} : index\n"
    "  %q = pto.divsi %c1, %c : index\n  return\n}}\n"
).format


def _cores(pops: int) -> str:
    """A kernel whose vector core pushes one tile, and whose cube core pops this many."""
    opened = "    pto.fifo.open {fifo = f, direction = v2c, slots = 4, slotSize = 256}\n"
    popped = "".join(f"    %t{i} = pto.tile.pop {{fifo = f}} : tile<8x8xf32>\n" for i in range(pops))
    return (
        "module {\n  func.func @kernel() attributes {pto.entry} {\n    func.call @cube() : () -> ()\n"
        "    func.call @vector() : () -> ()\n    return\n  }\n"
        f"  func.func @cube() {{\n{opened}{popped}    return\n  }}\n"
        f"  func.func @vector() {{\n{opened}    %one = pto.constant 1.0 : f32\n"
        "    %t = pto.tile.expands %one : f32, tile<8x8xf32>\n"
        "    pto.tile.push %t {fifo = f} : tile<8x8xf32>\n    return\n  }\n}\n"
    )


CODES: tuple[Code, ...] = (
    _code("ParseError", "The text is not PTO IR.", _program(_LOAD, "%u = pto.tile.add %t, %t tile<32x32xf32>"), _GOOD),
    _code("UndefinedValue", "A name is used before it is defined, or is never defined.", _program(_STORE, _LOAD), _GOOD),
    _code("RedefinedValue", "A name is defined twice.", _program(_LOAD, _LOAD), _GOOD),
    _code("UnknownOp", "PTO has no op of this name.", _program("%x = pto.tile.lod %a[%c0, %c0] : tile<4x8xf32>"), _GOOD),
    _code(
        "UnknownAttribute",
        "The op has no attribute of this name.",
        _program(_LOAD, "%u = pto.tile.exp %t {rmode = #pto.round_mode<CAST_RINT>} : tile<32x32xf32>"),
        _program(_LOAD, "%u = pto.tile.exp %t : tile<32x32xf32>"),
    ),
    _code(
        "TypeMismatch",
        "A value does not have the type that its op requires or that the text declares. Nothing is promoted.",
        _program(_LOAD, "%h = pto.constant 1 : i32", "%u = pto.tile.adds %t, %h : tile<32x32xf32>, i32"),
        _program(_LOAD, "%h = pto.constant 1.0 : f32", "%u = pto.tile.adds %t, %h : tile<32x32xf32>, f32"),
    ),
    _code(
        "RankMismatch",
        "The rank of an operand, or the length of a list of indices, is not what the op needs.",
        _program("%t = pto.tile.load %a[%c0] : pto.memref<32x32xf32>, tile<32x32xf32>"),
        _program(_LOAD),
    ),
    _code(
        "ShapeMismatch",
        "Two shapes must agree, and differ.",
        _program(_LOAD, "%u = pto.tile.trans %t : tile<32x32xf32> -> tile<16x64xf32>"),
        _program(_LOAD, "%u = pto.tile.trans %t : tile<32x32xf32> -> tile<32x32xf32>"),
    ),
    _code(
        "InvalidValid",
        "A valid region must satisfy 0 < valid[d] <= shape[d]. Constants are checked by verify, other values at run time.",
        _program(_LOAD, "%u = pto.tile.add %t, %t {valid = [0, 32]} : tile<32x32xf32>"),
        _program(_LOAD, "%u = pto.tile.add %t, %t {valid = [16, 32]} : tile<32x32xf32>"),
    ),
    _code(
        "OutOfBounds",
        "A window reaches outside its memref or tile. Nothing is clipped; `valid` makes the window smaller.",
        _program("%c8 = pto.constant 8 : index", _LOAD.replace("%c0, %c0", "%c8, %c0")),
        _program(_LOAD),
    ),
    _code(
        "InvalidLayout",
        "The location of a tile, or the op, does not allow the tile's layout.",
        _program(
            "%t = pto.tile.load %a[%c0, %c0] : pto.memref<32x32xf32>, tile<32x32xf32, #pto.tile_info<layout=Zz>>", target="a3"
        ),
        _program(
            "%t = pto.tile.load %a[%c0, %c0] : pto.memref<32x32xf32>, tile<32x32xf32, #pto.tile_info<layout=ND>>", target="a3"
        ),
    ),
    _code(
        "InvalidLocation",
        "The op cannot use a tile in this location.",
        _program(f"%c = pto.tile.matmul %l, %r : {_RIGHT}, {_RIGHT} -> {_ACC}", parameters=f"%l: {_RIGHT}, %r: {_RIGHT}"),
        _program(f"%c = pto.tile.matmul %l, %r : {_LEFT}, {_RIGHT} -> {_ACC}", parameters=f"%l: {_LEFT}, %r: {_RIGHT}"),
    ),
    _code(
        "EventProducerMismatch",
        "The type of an event names another producer than the op that signals it.",
        _program(_LOAD_ASYNC.replace("TLOAD", "TADD"), _STORE_ASYNC, f"pto.sync wait(%f) : {_TSTORE}"),
        _program(_LOAD_ASYNC, _STORE_ASYNC, f"pto.sync wait(%f) : {_TSTORE}"),
    ),
    _code(
        "MissingWait",
        "The result of an asynchronous op is used without a wait for its completion.",
        _program(_LOAD_ASYNC, _STORE_ASYNC.replace(" wait(%e)", ""), f"pto.sync wait(%e, %f) : {_TLOAD}, {_TSTORE}"),
        _program(_LOAD_ASYNC, _STORE_ASYNC, f"pto.sync wait(%f) : {_TSTORE}"),
    ),
    _code(
        "MemoryHazard",
        "A store and another access of the same memory are not ordered. It is an error if they overlap, a warning if they may.",
        _program(_LOAD_ASYNC, _STORE_ASYNC, _LOAD.replace("%t", "%u").replace("%a", "%out"), f"pto.sync wait(%f) : {_TSTORE}"),
        _program(_LOAD_ASYNC, _STORE_ASYNC, f"pto.sync wait(%f) : {_TSTORE}", _LOAD.replace("%t", "%u").replace("%a", "%out")),
    ),
    _code(
        "UnwaitedEvent",
        "Warning: nothing waits for an event. Its op completes when the function returns, or earlier.",
        _program(_LOAD_ASYNC),
        _program(_LOAD_ASYNC, f"pto.sync wait(%e) : {_TLOAD}"),
    ),
    _code(
        "RedundantWait",
        "Note: a wait has no effect. The op that it waits for is complete already, or is earlier in the same pipe.",
        _program(_LOAD_ASYNC, f"pto.sync wait(%e) : {_TLOAD}", f"pto.sync wait(%e) : {_TLOAD}"),
        _program(_LOAD_ASYNC, f"pto.sync wait(%e) : {_TLOAD}"),
    ),
    _code(
        "EventIdsExhausted",
        "A pair of pipes has only the event ids 0 to 7.",
        _program(_LOAD_ASYNC.replace("TLOAD>", "TLOAD>, eid = 8"), f"pto.sync wait(%e) : {_TLOAD}"),
        _program(_LOAD_ASYNC.replace("TLOAD>", "TLOAD>, eid = 7"), f"pto.sync wait(%e) : {_TLOAD}"),
    ),
    _code(
        "EventIdReused",
        "Two events between the same pipes have the same id, and the second is signaled before a wait for the first.",
        _two_loads(0, 0),
        _two_loads(0, 1),
    ),
    _code(
        "TileOverwritten",
        "A tile is used after another tile was written to its memory (`pto.tile.assign` gives the addresses). Or it is in "
        "memory that an op of the target uses for itself.",
        _two_tiles(0),
        _two_tiles(4096),
    ),
    _code(
        "TileMoved",
        "A tile is bound to an address, and is at another one already. `pto.tile.assign` moves nothing. It is a warning if it "
        "depends on a branch, or on how often a loop repeats.",
        _program(_LOAD, *_BOUND_TWICE, _STORE),
        _program(_LOAD, _BOUND_TWICE[0], _STORE),
    ),
    Code(
        "Unproved",
        "Warning: the hazard check is incomplete. A loop has accesses at unknown distances or too many iterations, an "
        "address is unknown, or too many conditions hold at once.",
    ),
    _code(
        "IllegalOnTarget",
        "The target has no such op for these element types or sizes.",
        _program(
            "%t = pto.tile.load %a[%c0, %c0] : pto.memref<16x32xbf16>, tile<16x32xbf16>",
            "%u = pto.tile.add %t, %t : tile<16x32xbf16>",
            target="a3",
            parameters="%a: pto.memref<16x32xbf16>",
        ),
        _program(
            "%t = pto.tile.load %a[%c0, %c0] : pto.memref<16x32xbf16>, tile<16x32xbf16>",
            "%u = pto.tile.add %t, %t : tile<16x32xbf16>",
            target="a5",
            parameters="%a: pto.memref<16x32xbf16>",
        ),
    ),
    _code(
        "Misaligned",
        "A row of an ND tile, or a column of a DN tile, must be a multiple of 32 bytes. Boxed layouts need full boxes.",
        _program("%t = pto.tile.load %a[%c0, %c0] : pto.memref<32x32xf32>, tile<4x5xf32>", target="a3"),
        _program("%t = pto.tile.load %a[%c0, %c0] {valid = [4, 5]} : pto.memref<32x32xf32>, tile<4x8xf32>", target="a3"),
    ),
    _code(
        "CapacityExceeded",
        "A tile, or all tiles that are live at once, do not fit into their memory space.",
        _wide(512),
        _wide(128),
    ),
    _code(
        "UnknownTarget",
        "No target has this name. The targets are a3 and a5.",
        _program(target="a9"),
        _program(target="a3"),
    ),
    _code(
        "RecursiveCall",
        "A function calls itself.",
        "module {\n  func.func @f() {\n    func.call @f() : () -> ()\n    return\n  }\n}\n",
        "module {\n  func.func @g() {\n    return\n  }\n  func.func @f() {\n    func.call @g() : () -> ()\n    return\n  }\n}\n",
    ),
    _code(
        "InvalidStep",
        "The step of a loop must be positive.",
        _program("scf.for %i = %c0 to %n step %c0 {", "}"),
        _program("%c1 = pto.constant 1 : index", "scf.for %i = %c0 to %n step %c1 {", "}"),
    ),
    Code(
        "TargetOverridden",
        "Warning: the command line names another target than the module.\n\nThe examples are for `ptir verify --target a5`.",
        _FOR_TARGET("a3"),
        _FOR_TARGET("a5"),
        "pto",
    ),
    Code(
        "UndefinedElement",
        "At run time: a store or reduction reads an undefined element. `--undef` selects what happens instead.",
    ),
    Code(
        "IntegerDivideByZero",
        "At run time: an integer is divided by zero.\n\nThe examples are for `ptir run --random 0`.",
        _DIVIDED(0),
        _DIVIDED(2),
        "pto",
    ),
    Code(
        "Deadlock",
        "At run time: every core of a kernel waits for a FIFO, for a tile or for a free slot.\n\n"
        "The examples are for `ptir run --random 0`.",
        _cores(2),
        _cores(1),
        "pto",
    ),
    Code("UnboundSymbol", "A program with a `?` extent in a tile cannot be run."),
)
