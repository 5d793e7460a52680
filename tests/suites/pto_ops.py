"""What the suite `pto-isa` compiles: programs of PTIR, and a kernel of each tile op in an element type."""

from __future__ import annotations

from collections.abc import Iterator

R, C = 16, 64
_BINARY = "add sub mul div max min rem fmod pow and or xor shl shr subrelu prelu partadd partmul partmax partmin"
_UNARY = "exp sqrt rsqrt log recip abs neg relu not mov.v2v"
_SCALAR = "adds subs muls divs maxs mins rems fmods pows ands ors xors shls shrs lrelu"
_ROWS = "rowsum rowprod rowmax rowmin rowargmax rowargmin"
_COLUMNS = "colsum colprod colmax colmin colargmax colargmin"
_SPREAD = ("add", "sub", "mul", "div", "max", "min", "expdif")
SUMS = {*_ROWS.split(), *_COLUMNS.split(), "load", "mov.m2l", "mov.m2b", "mov.a2v", "addc", "subc", "addsc", "subsc"}
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
        to = [d for d in ("f32", "i32", "f16") if d != dtype][:1]
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
        return None
    return _module(dtype, loads, lines, [("r", out)], rows, columns)


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
