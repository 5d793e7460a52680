"""C that `ptir translate --to c` writes, at `-O2`, next to the native engine, by each compiler; one thread, milliseconds."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import ptir_tools
from ptir_tools.engines.inputs import random_inputs
from tests.bridges.c.running import COMPILERS, written

GELU = """func @f(%x: tensor<f32, 256x3072>) -> tensor<f32, 256x3072> {
  %a = mul(%x, dense<0.70710677> : tensor<f32, 256x3072>) -> tensor<f32, 256x3072>
  %e = erf(%a) -> tensor<f32, 256x3072>
  %o = add(%e, dense<1.0> : tensor<f32, 256x3072>) -> tensor<f32, 256x3072>
  %h = mul(%x, dense<0.5> : tensor<f32, 256x3072>) -> tensor<f32, 256x3072>
  %y = mul(%h, %o) -> tensor<f32, 256x3072>
  return %y
}
"""
SOFTMAX = """func @f(%t: tensor<f32, 512x1024>) -> tensor<f32, 512x1024> {
  %m = reduce_max(%t) axes[1] keepdims[true] -> tensor<f32, 512x1>
  %mb = broadcast_to(%m) result_shape[512, 1024] -> tensor<f32, 512x1024>
  %d = sub(%t, %mb) -> tensor<f32, 512x1024>
  %e = exp(%d) -> tensor<f32, 512x1024>
  %z = reduce_sum(%e) axes[1] keepdims[true] -> tensor<f32, 512x1>
  %zb = broadcast_to(%z) result_shape[512, 1024] -> tensor<f32, 512x1024>
  %p = div(%e, %zb) -> tensor<f32, 512x1024>
  return %p
}
"""
ATTENTION = """func @f(%q: tensor<f32, 8x256x64>, %k: tensor<f32, 8x256x64>, %v: tensor<f32, 8x256x64>) -> tensor<f32, 8x256x64> {
  %s = dot_general(%q, %k) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[2] -> tensor<f32, 8x256x256>
  %m = reduce_max(%s) axes[2] keepdims[true] -> tensor<f32, 8x256x1>
  %mb = broadcast_to(%m) result_shape[8, 256, 256] -> tensor<f32, 8x256x256>
  %d = sub(%s, %mb) -> tensor<f32, 8x256x256>
  %e = exp(%d) -> tensor<f32, 8x256x256>
  %z = reduce_sum(%e) axes[2] keepdims[true] -> tensor<f32, 8x256x1>
  %zb = broadcast_to(%z) result_shape[8, 256, 256] -> tensor<f32, 8x256x256>
  %p = div(%e, %zb) -> tensor<f32, 8x256x256>
  %o = dot_general(%p, %v) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[1] -> tensor<f32, 8x256x64>
  return %o
}
"""
CONVNET = """func @f(%x: tensor<f32, 1x32x32x16>, %w: tensor<f32, 144x32>, %u: tensor<f32, 288x32>) -> tensor<f32, 1x32x32x32> {
  %p = extract_patches(%x) window[3, 3] strides[1, 1] dilation[1, 1] padding[[1, 1], [1, 1]] -> tensor<f32, 1x32x32x144>
  %y = dot_general(%p, %w) batch_lhs[] batch_rhs[] contract_lhs[3] contract_rhs[0] -> tensor<f32, 1x32x32x32>
  %r = maximum(%y, dense<0.0> : tensor<f32, 1x32x32x32>) -> tensor<f32, 1x32x32x32>
  %q = extract_patches(%r) window[3, 3] strides[1, 1] dilation[1, 1] padding[[1, 1], [1, 1]] -> tensor<f32, 1x32x32x288>
  %s = dot_general(%q, %u) batch_lhs[] batch_rhs[] contract_lhs[3] contract_rhs[0] -> tensor<f32, 1x32x32x32>
  return %s
}
"""


def rows() -> Iterator[tuple[str, float, float | None, str]]:
    """A row per program."""
    for name, source in (("gelu", GELU), ("softmax", SOFTMAX), ("attention", ATTENTION), ("convnet", CONVNET)):
        program = ptir_tools.read(source)
        inputs = random_inputs(program, 0)
        native = ptir_tools.compile(program, engine="native")
        with tempfile.TemporaryDirectory() as folder:
            outputs = [*native(inputs).values()]
            (Path(folder) / "f.c").write_text(written(program) or "")
            for compiler in COMPILERS:
                ours = compiled(compiler, Path(folder), [*inputs.values()], outputs)
                pairs = [(timed(ours), timed(lambda n=native, x=inputs: n(x))) for _ in range(30)]  # type: ignore[misc]
                yield f"{name}, {compiler}", min(a for a, _ in pairs), min(b for _, b in pairs), "ms"


def compiled(compiler: str, folder: Path, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> Callable[[], object]:
    """A call of the compiled function of `f.c`."""
    made = folder / f"{compiler}.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", made, folder / "f.c", "-lm"], check=True)
    library = ctypes.CDLL(str(made))
    library.f_arena.restype = ctypes.c_size_t
    memory = np.empty(library.f_arena() + 64, np.uint8)
    results = [np.empty_like(x) for x in outputs]
    arena = ctypes.c_void_p((memory.ctypes.data + 63) // 64 * 64)
    arguments = [ctypes.c_void_p(x.ctypes.data) for x in (*inputs, *results)]
    return lambda keep=(memory, inputs, results): library.f(arena, *arguments)


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of a call."""
    start = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - start)
