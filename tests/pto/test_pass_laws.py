"""What passes of PTO promise, each on one small program."""

import re

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.passes import PassContext, run_pipeline
from tests.pto.programs import KERNELS, check, good, printed

M, T = "pto.memref<64x32xf32>", "tile<32x32xf32>"


def test_a_function_bound_by_hand_stays_next_to_one_that_is_bound():
    program = good(f"""module {{
  func.func @by_hand(%a: {M}) {{
    %c4096 = pto.constant 4096 : index
    %t = pto.tile.load %a[0, 0] : {M}, {T}
    pto.tile.assign %t, %c4096 : {T}, index
    pto.tile.store %t, %a[0, 0] : {M}, {T}
    return
  }}
  func.func @free(%a: {M}) {{
    %u = pto.tile.load %a[0, 0] : {M}, {T}
    pto.tile.store %u, %a[0, 0] : {M}, {T}
    return
  }}
}}
""")
    run_pipeline(program, "pto-bufferize", context := PassContext(diagnostics=Diagnostics()))
    assert not context.diagnostics.errors
    assert re.findall(r"assign %(\w+), %(\w+) ", printed(program)) == [("t", "c4096"), ("u", "0")]
    again = printed(program)
    run_pipeline(program, "pto-bufferize", PassContext(diagnostics=Diagnostics()))
    assert printed(program) == again


def test_loads_that_a_loop_waited_for_need_no_barrier_behind_it() -> None:
    program = good((KERNELS / "bufferize_nested_yield.pto").read_text("utf-8"))
    run_pipeline(program, "pto-insert-events", PassContext(diagnostics=Diagnostics()))
    text = printed(program)
    assert not list(check(text)[1])
    assert re.findall(r"sync.op #pto.op<(\w+)>", text) == ["TSTORE_VEC"]  # its stores have waited for all the others
