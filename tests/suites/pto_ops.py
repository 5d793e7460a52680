"""What the suite `pto-isa` compiles: programs of PTIR, and a kernel of each tile op in an element type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

R, C = 16, 64
_BINARY = "add sub mul div max min rem fmod pow and or xor shl shr subrelu prelu partadd partmul partmax partmin"
_UNARY = "exp sqrt rsqrt log recip abs neg relu not mov.v2v"
_SCALAR = "adds subs muls divs maxs mins rems fmods pows ands ors xors shls shrs lrelu"
_ROWS = "rowsum rowprod rowmax rowmin rowargmax rowargmin"
_COLUMNS = "colsum colprod colmax colmin colargmax colargmin"
_SPREAD = ("add", "sub", "mul", "div", "max", "min", "expdif")
SUMS = {
    *_ROWS.split(),
    *_COLUMNS.split(),
    "load",
    "mov.m2l",
    "mov.m2b",
    "mov.a2v",
    "addc",
    "subc",
    "addsc",
    "subsc",
    "axpy",
    "muladddst",
    "fusedmuladd",
    "fusedmuladdrelu",
}
WIDE = "tensor<f32, 64x48>"
PROGRAMS = {
    "softmax": """func @main(%x: tensor<f32, 2x40x24>) -> tensor<f32, 2x40x24> {
  %m = reduce_max(%x) axes[2] keepdims[true] -> tensor<f32, 2x40x1>
  %mb = broadcast_to(%m) result_shape[2, 40, 24] -> tensor<f32, 2x40x24>
  %d = sub(%x, %mb) -> tensor<f32, 2x40x24>
  %e = exp(%d) -> tensor<f32, 2x40x24>
  %s = reduce_sum(%e) axes[2] keepdims[true] -> tensor<f32, 2x40x1>
  %sb = broadcast_to(%s) result_shape[2, 40, 24] -> tensor<f32, 2x40x24>
  %y = div(%e, %sb) -> tensor<f32, 2x40x24>
  return %y
}
""",
    "layer_norm": """func @main(%x: tensor<f32, 70x48>, %g: tensor<f32, 48>, %b: tensor<f32, 48>) -> tensor<f32, 70x48> {
  %y = layer_norm(%x, %g, %b) epsilon[0.00001] -> tensor<f32, 70x48>
  return %y
}
""",
    "product": """func @main(%a: tensor<f16, 70x200>, %b: tensor<f16, 200x50>) -> tensor<f32, 70x50> {
  %p = dot_general(%a, %b) contract_lhs[1] contract_rhs[0] out_dtype[f32] -> tensor<f32, 70x50>
  return %p
}
""",
    "fused product": """func @main(%a: tensor<f16, 70x200>, %b: tensor<f16, 200x50>, %c: tensor<f32, 50>) -> tensor<f32, 70x50> {
  %p = dot_general(%a, %b) contract_lhs[1] contract_rhs[0] out_dtype[f32] -> tensor<f32, 70x50>
  %cb = broadcast_to(%c) result_shape[70, 50] -> tensor<f32, 70x50>
  %s = add(%p, %cb) -> tensor<f32, 70x50>
  %y = exp(%s) -> tensor<f32, 70x50>
  return %y
}
""",
    "tanh": """func @main(%x: tensor<f32, 33x70>) -> tensor<f32, 33x70> {
  %t = tanh(%x) -> tensor<f32, 33x70>
  %u = erf(%t) -> tensor<f32, 33x70>
  return %u
}
""",
    "select": """func @main(%a: tensor<f32, 20x13>, %b: tensor<f32, 20x13>) -> tensor<f32, 20x13> {
  %l = compare_lt(%a, %b) -> tensor<i1, 20x13>
  %s = select(%l, %b, %a) -> tensor<f32, 20x13>
  %y = mul(%s, %a) -> tensor<f32, 20x13>
  return %y
}
""",
    "compare i32": """func @main(%a: tensor<si32, 20x16>, %b: tensor<si32, 20x16>) -> tensor<si32, 20x16> {
  %l = compare_lt(%a, %b) -> tensor<i1, 20x16>
  %s = select(%l, %b, %a) -> tensor<si32, 20x16>
  return %s
}
""",
    "transpose": """func @main(%x: tensor<f32, 20x36>, %y: tensor<f32, 36x20>) -> tensor<f32, 36x20> {
  %t = transpose(%x) perm[1, 0] -> tensor<f32, 36x20>
  %s = add(%t, %y) -> tensor<f32, 36x20>
  return %s
}
""",
    "argmax": """func @main(%x: tensor<f32, 20x36>) -> tensor<si32, 20> {
  %i = argmax(%x) axis[1] output_dtype[si32] -> tensor<si32, 20>
  return %i
}
""",
    "attention": """func @main(%q: tensor<f16, 2x64x32>, %k: tensor<f16, 2x64x32>, %v: tensor<f16, 2x64x32>)
    -> tensor<f32, 2x64x32> {
  %s = dot_general(%q, %k) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[2] out_dtype[f32] -> tensor<f32, 2x64x64>
  %m = reduce_max(%s) axes[2] keepdims[true] -> tensor<f32, 2x64x1>
  %mb = broadcast_to(%m) result_shape[2, 64, 64] -> tensor<f32, 2x64x64>
  %d = sub(%s, %mb) -> tensor<f32, 2x64x64>
  %e = exp(%d) -> tensor<f32, 2x64x64>
  %n = reduce_sum(%e) axes[2] keepdims[true] -> tensor<f32, 2x64x1>
  %nb = broadcast_to(%n) result_shape[2, 64, 64] -> tensor<f32, 2x64x64>
  %p = div(%e, %nb) -> tensor<f32, 2x64x64>
  %h = cast(%p) -> tensor<f16, 2x64x64>
  %y = dot_general(%h, %v) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[1] out_dtype[f32] -> tensor<f32, 2x64x32>
  return %y
}
""",
    "several": f"""func @main(%x: {WIDE}, %w: tensor<f32, 48x48>) -> {WIDE} {{
  %m = reduce_max(%x) axes[1] keepdims[true] -> tensor<f32, 64x1>
  %mb = broadcast_to(%m) result_shape[64, 48] -> {WIDE}
  %d = sub(%x, %mb) -> {WIDE}
  %p = dot_general(%d, %w) contract_lhs[1] contract_rhs[0] -> {WIDE}
  %n = reduce_max(%p) axes[0] keepdims[true] -> tensor<f32, 1x48>
  %nb = broadcast_to(%n) result_shape[64, 48] -> {WIDE}
  %e = sub(%p, %nb) -> {WIDE}
  return %e
}}
""",
}


def kernels_of(name: str, dtype: str, target: str) -> Iterator[str]:
    """Kernels of one op whose first tile has these elements: on whole tiles, and with a part of the rows and columns valid. None
    for an op whose form is not listed."""
    for rows, columns in ((R, C), (R - 3, C - 9)):
        if (made := _lines(name, dtype, rows, columns)) is not None:
            yield made.replace("TARGET", target)


def _lines(name: str, dtype: str, rows: int, columns: int) -> str | None:
    """The text of one kernel."""
    t, i = _tile(dtype, R, C), f"pto.tile.{name}"
    number = "1.5" if dtype[0] in "fb" else "3"
    out: tuple[str, int, int] = (dtype, R, C)
    loads, lines = ["a"], list[str]()
    if name in _BINARY.split():
        loads, lines = ["a", "b"], [f"%r = {i} %a, %b : {t}"]
    elif name in _UNARY.split():
        arrow = f" -> {t}" if name in ("abs", "mov.v2v") else ""
        lines = [f"%r = {i} %a : {t}{arrow}"]
    elif name in _SCALAR.split():
        lines = [f"%k = pto.constant {number} : {dtype}", f"%r = {i} %a, %k : {t}, {dtype}"]
    elif name in (*_ROWS.split(), *_COLUMNS.split()):
        made = "i32" if "arg" in name else dtype
        out = (made, R, 1) if name.startswith("row") else (made, 1, C)
        lines = [f"%r = {i} %a : {t} -> {_tile(*out)}"]
    elif name in ("addc", "subc", "fusedmuladd", "fusedmuladdrelu", "muladddst"):
        loads, lines = ["a", "b", "c"], [f"%r = {i} %a, %b, %c : {t}"]
    elif name in ("cmp", "cmps"):
        mask = _tile("i8", R, C)
        second, types = ("%b", t) if name == "cmp" else ("%k", f"{t}, {dtype}")
        loads = ["a", "b"]
        for k, mode in enumerate(("LT", "EQ", "GE")):
            lines += [f"%m{k} = {i} %a, {second} {{cmpMode = #pto.cmp<{mode}>}} : {types} -> {mask}"]
            lines += [f"%r{k} = pto.tile.sel %m{k}, %a, %b : {mask}, {t}, {t} -> {t}"]
        lines = [f"%k = pto.constant {number} : {dtype}", *lines]
        return _module(dtype, loads, lines, [(f"r{k}", out) for k in range(3)], rows, columns)
    elif name.startswith(("rowexpand", "colexpand")) and (kind := name[9:]) in ("", *_SPREAD):
        vector = _tile(dtype, R, 1) if name.startswith("row") else _tile(dtype, 1, C)
        low, high = (rows, 1) if name.startswith("row") else (1, columns)
        layout = ", {layout = #pto.layout<DN>}" if name.startswith("row") else ""
        shape = f"{R}x1" if name.startswith("row") else f"1x{C}"
        memory = f"pto.memref<{shape}x{dtype}{layout}>"
        lines = [f"%v = pto.tile.load %w[0, 0] {{valid = [{low}, {high}]}} : {memory}, {vector}"]
        lines += [f"%r = {i} %a, %v : {t}, {vector} -> {t}" if kind else f"%r = {i} %v : {vector} -> {t}"]
        return _module(dtype, ["a"], lines, [("r", out)], rows, columns, f"%w: {memory}, ")
    elif name == "cvt":
        to = [d for d in ("f32", "f16", "i8", "u8", "i16", "u16", "i32", "u32") if d != dtype]
        outs = list[tuple[str, tuple[str, int, int]]]()
        for d in to:
            lines.append(f"%r{d} = {i} %a {{rmode = #pto.round_mode<CAST_TRUNC>}} : {t} -> {_tile(d, R, C)}")
            outs.append((f"r{d}", (d, R, C)))
        return _module(dtype, loads, lines, outs, rows, columns)
    elif name == "trans":
        out = (dtype, C, R)
        lines = [f"%r = {i} %a : {t} -> {_tile(*out)}"]
    elif name == "expands":
        lines = [f"%k = pto.constant {number} : {dtype}", f"%r = {i} %k : {dtype}, {t}"]
    elif name in ("fillpad", "fillpad.inplace"):
        lines = [f"%r = {i} %a {{pad = #pto.pad<Max>}} : {t} -> {t}"]
    elif name == "concat":
        out = (dtype, R, 2 * C)
        loads, lines = ["a", "b"], [f"%r = {i} %a, %b : {t}, {t} -> {_tile(*out)}"]
    elif name == "load":
        lines = [f"%r = pto.tile.mov.v2v %a : {t} -> {t}"] if dtype[:2] not in ("i6", "u6") else []
        if not lines:
            return _module(dtype, loads, [], [("a", out)], rows, columns)
    elif name in ("gather", "scatter"):
        return _indexed(name, dtype, rows, columns)
    else:
        return _formed(name, dtype, rows, columns) if name in FORMS else None
    return _module(dtype, loads, lines, [("r", out)], rows, columns)


# Other ops: operands, statements and results. `@16x64D:Mat` is a tile, `a@16x64D` an operand that is loaded or a result that is
# stored, and `%k` a number. D are the elements of the case, A those that a product of them has. H are elements whose products
# have D, S are D or f32, and I are integers of the same size.
_MASK = "%m = pto.tile.cmp %p, %q {cmpMode = #pto.cmp<LT>} : @16x64f32 -> @16x64i8"
_LEFT = "%l = pto.tile.mov.m2l %x : @16x64D:Mat -> @16x64D:Left"
_RIGHT = "%w = pto.tile.mov.m2r %y : @64x32D:Mat -> @64x32D:Right"
_SIDES = "@16x64D:Left, @64x32D:Right"
_PRODUCT = (_LEFT, _RIGHT, f"%c = pto.tile.matmul %l, %w : {_SIDES} -> @16x32A:Acc")
_FLOATS = tuple(re.sub(r"(\d)D", r"\1H", line).replace("A:", "D:") for line in _PRODUCT)
_MATRICES, _HALVES = "x@16x64D:Mat y@64x32D:Mat", "x@16x64H:Mat y@64x32H:Mat"
# A tile of Mat is multiplied, because a5 does not store it.
_HALF = (
    "%g = pto.tile.mov.m2l %r : @16x32f16:Mat -> @16x32f16:Left",
    "%v = pto.tile.mov.m2r %u : @32x32f16:Mat -> @32x32f16:Right",
    "%z = pto.tile.matmul %g, %v : @16x32f16:Left, @32x32f16:Right -> @16x32f32:Acc",
)
_BYTES = tuple(line.replace("f16", "i8").replace("f32", "i32") for line in _HALF)
_SCALES = "%s = pto.tile.mov.m2s %f : @1x32u64:Mat -> @1x32u64:Scale"
_WHOLE, _BOTH = "r@16x64D", "a@16x64D b@16x64D"
_PAIRS = f"{_BOTH} i@16x64I j@16x64I"
_EXTREME = "%r, %n = pto.tile.partargmax %a, %i, %b, %j : @16x64D, @16x64I -> (@16x64D, @16x64I)"
FORMS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "addsc": (_BOTH, ("%r = pto.tile.addsc %a, %k, %b : @16x64D, D",), _WHOLE),
    "subsc": (_BOTH, ("%r = pto.tile.subsc %a, %k, %b : @16x64D, D",), _WHOLE),
    "axpy": (_BOTH, ("%r = pto.tile.axpy %a, %b, %k : @16x64D, D",), _WHOLE),
    "sel": (
        f"p@16x64f32 q@16x64f32 {_BOTH}",
        (_MASK, "%r = pto.tile.sel %m, %a, %b : @16x64i8, @16x64D, @16x64D -> @16x64D"),
        _WHOLE,
    ),
    "adddeqrelu": (
        _BOTH,
        ("%h = pto.constant 0.5 : f32", "%r = pto.tile.adddeqrelu %a, %b, %h : @16x64D, f32 -> @16x64f16"),
        "r@16x64f16",
    ),
    "partargmax": (_PAIRS, (_EXTREME,), "r@16x64D n@16x64I"),
    "partargmin": (_PAIRS, (_EXTREME.replace("max", "min"),), "r@16x64D n@16x64I"),
    "fillpad.expand": ("a@16x64D", ("%r = pto.tile.fillpad.expand %a {pad = #pto.pad<Max>} : @16x64D -> @32x128D",), "r@32x128D"),
    "extract.vec": ("a@32x128D", ("%r = pto.tile.extract.vec %a[16, 64] : @32x128D -> @16x64D",), _WHOLE),
    "reshape": (
        "a@16x64D",
        ("%b = pto.tile.reshape %a : @16x64D -> @8x128D", "%r = pto.tile.reshape %b : @8x128D -> @16x64D"),
        _WHOLE,
    ),
    "insert": ("a@16x64D d@32x64D", ("%r = pto.tile.insert %a[16, 0], %d : @16x64D, @32x64D -> @32x64D",), "r@32x64D"),
    "insert.fp": (
        f"{_HALVES} f@1x32u64:Mat d@32x32i8:Mat u@32x32i8:Mat",
        (
            *_FLOATS,
            _SCALES,
            "%r = pto.tile.insert.fp %c[16, 0], %s, %d : @16x32D:Acc, @1x32u64:Scale, @32x32i8:Mat -> @32x32i8:Mat",
            *(line.replace("@16x32", "@32x32") for line in _BYTES),
        ),
        "z@32x32i32:Acc",
    ),
    "ci": ("", ("%r = pto.tile.ci %k : D -> @1x64D",), "r@1x64D"),
    "tri": ("", ("%h = pto.constant 2 : i32", "%r = pto.tile.tri %h : i32, @16x64D"), _WHOLE),
    "print": ("a@16x64D", ("pto.tile.print %a : @16x64D",), "a@16x64D"),
    "sort32": ("a@16x64D", ("%r, %n = pto.tile.sort32 %a : @16x64D -> (@16x64D, @16x64i32)",), "r@16x64D n@16x64i32"),
    "mov.m2l": (_MATRICES, _PRODUCT, "c@16x32A:Acc"),
    "mov.m2b": (
        f"{_HALVES} d@1x32D:Mat",
        (
            *_FLOATS[:2],
            "%v = pto.tile.mov.m2b %d : @1x32D:Mat -> @1x32S:Bias",
            "%c = pto.tile.matmul.bias %l, %w, %v : @16x64H:Left, @64x32H:Right, @1x32S:Bias -> @16x32S:Acc",
        ),
        "c@16x32S:Acc",
    ),
    "extract": (
        "x@16x128D:Mat y@64x32D:Mat",
        (
            "%l = pto.tile.extract %x[0, 64] : @16x128D:Mat -> @16x64D:Left",
            _RIGHT,
            f"%e = pto.tile.matmul %l, %w : {_SIDES} -> @16x32A:Acc",
            "%g = pto.tile.extract %x[0, 0] : @16x128D:Mat -> @16x64D:Left",
            f"%c = pto.tile.matmul.acc %e, %g, %w : @16x32A:Acc, {_SIDES} -> @16x32A:Acc",
        ),
        "c@16x32A:Acc",
    ),
    "mov.a2v": (_HALVES, (*_FLOATS, "%r = pto.tile.mov.a2v %c : @16x32D:Acc -> @16x32D"), "r@16x32D"),
    "mov.a2m": (
        f"{_HALVES} u@32x32f16:Mat",
        (*_FLOATS, "%r = pto.tile.mov.a2m %c : @16x32D:Acc -> @16x32f16:Mat", *_HALF),
        "z@16x32f32:Acc",
    ),
    "mov.fp": (
        f"{_HALVES} f@1x32u64:Mat u@32x32i8:Mat",
        (*_FLOATS, _SCALES, "%r = pto.tile.mov.fp %c, %s : @16x32D:Acc, @1x32u64:Scale -> @16x32i8:Mat", *_BYTES),
        "z@16x32i32:Acc",
    ),
    "mov.v2m": (
        "a@16x64D y@64x32D:Mat",
        ("%x = pto.tile.mov.v2m %a : @16x64D -> @16x64D:Mat", *_PRODUCT),
        "c@16x32A:Acc",
    ),
    "store.fp": (
        f"{_HALVES} f@1x32u64:Mat",
        (*_FLOATS, _SCALES, "pto.tile.store.fp %c, %s, %o_r[0, 0] : @16x32D:Acc, @1x32u64:Scale, pto.memref<16x32xi8>"),
        "r@16x32i8",
    ),
}  # fmt: skip


def _formed(name: str, dtype: str, rows: int, columns: int) -> str | None:
    """A kernel of a form; of partial tiles only if the operands are tiles of Vec of the usual shape."""
    operands, lines, outs = FORMS[name]
    partial = (rows, columns) != (R, C)
    if partial and (name == "reshape" or not operands or any(not x.endswith(f"@{R}x{C}D") for x in operands.split())):
        return None
    product, index = ("i32", "i32") if dtype == "i8" else ("f32", f"i{dtype[-2:]}" if dtype[-2:] in ("16", "32") else "i8")
    whole = dtype == "i32"
    kinds = {"D": dtype, "A": product, "I": index, "H": "i8" if whole else "f16", "S": dtype if whole else "f32"}

    def spelled(found: re.Match[str]) -> str:
        info = f", #pto.tile_info<loc={found[3]}>" if found[3] else ""
        return f"tile<{found[1]}x{kinds.get(found[2], found[2])}{info}>"

    def listed(text: str) -> Iterator[tuple[str, str, str]]:
        for x in text.split():
            value, _, t = x.partition("@")
            yield value, memory(t), _TILE.sub(spelled, f"@{t}")

    def memory(t: str) -> str:
        return re.sub(r"tile<([^,>]*).*", r"pto.memref<\1>", _TILE.sub(spelled, f"@{t}"))

    valid = f" {{valid = [{rows}, {columns}]}}" if partial else ""
    given, made = list(listed(operands)), list(listed(outs))
    body = [f"%k = pto.constant {'1.5' if dtype[0] in 'fb' else 3} : {dtype}"]
    body += [f"%{v} = pto.tile.load %{v}0[0, 0]{valid} : {m}, {t}" for v, m, t in given]
    body += [re.sub(r"\bD\b", dtype, _TILE.sub(spelled, line)) for line in lines]
    body += [f"pto.tile.store %{v}, %o_{v}[0, 0] : {m}, {t}" for v, m, t in made if name != "store.fp"]
    parameters = ", ".join([*(f"%{v}0: {m}" for v, m, _ in given), *(f"%o_{v}: {m}" for v, m, _ in made)])
    text = "\n".join(f"    {x}" for x in (*body, "return"))
    return f"module attributes {{ pto.target = #pto.target<TARGET> }} {{\n  func.func @f({parameters}) {{\n{text}\n  }}\n}}\n"


_TILE = re.compile(r"@(\d+x\d+)([A-Za-z]\w*)(?::(\w+))?")


def _indexed(name: str, dtype: str, rows: int, columns: int) -> str:
    """A gather by indices, or a scatter, whose indices are computed."""
    t, index = _tile(dtype, R, C), "i16" if dtype[1:] == "16" else "i32"
    if name == "gather":
        lines = [f"%r = pto.tile.gather %a {{maskPattern = #pto.mask_pattern<P0101>}} : {t} -> {_tile(dtype, R, C // 2)}"]
        return _module(dtype, ["a"], lines, [("r", (dtype, R, C // 2))], R, C)
    it = _tile(index, R, C)
    lines = [f"%z = pto.constant 0 : {index}", f"%i = pto.tile.expands %z : {index}, {it}"]
    lines += [f"%r = pto.tile.scatter %a, %i : {t}, {it} -> {t}"]
    lines += [f"pto.tile.store %r, %o_r[0, 0] {{valid = [1, {columns}]}} : {_memory(dtype, R, C)}, {t}"]
    return _module(dtype, ["a"], lines, [], rows, columns, f"%o_r: {_memory(dtype, R, C)}, ")


def _tile(dtype: str, rows: int, columns: int) -> str:
    return f"tile<{rows}x{columns}x{dtype}>"


def _memory(dtype: str, rows: int, columns: int) -> str:
    layout = ", {layout = #pto.layout<DN>}" if columns == 1 and rows > 1 else ""
    return f"pto.memref<{rows}x{columns}x{dtype}{layout}>"


def _module(
    dtype: str,
    loads: list[str],
    lines: list[str],
    outs: list[tuple[str, tuple[str, int, int]]],
    rows: int,
    columns: int,
    more: str = "",
) -> str:
    """A function that loads tiles, does the lines, and stores tiles."""
    given = ", ".join([*(f"%{x}0: {_memory(dtype, R, C)}" for x in loads), *(f"%o_{v}: {_memory(*o)}" for v, o in outs)])
    valid = f" {{valid = [{rows}, {columns}]}}"
    head = [f"%{x} = pto.tile.load %{x}0[0, 0]{valid} : {_memory(dtype, R, C)}, {_tile(dtype, R, C)}" for x in loads]
    tail = [f"pto.tile.store %{v}, %o_{v}[0, 0] : {_memory(*o)}, {_tile(*o)}" for v, o in outs]
    body = "\n".join(f"    {x}" for x in (*head, *lines, *tail, "return"))
    return f"module attributes {{ pto.target = #pto.target<TARGET> }} {{\n  func.func @f({more}{given}) {{\n{body}\n  }}\n}}\n"
