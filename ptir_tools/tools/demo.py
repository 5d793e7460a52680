"""Small programs to begin with: `ptir demo`."""

from __future__ import annotations

SOFTMAX = """\
// Softmax of the last axis, written in small ops: `ptir opt -p recognize,dce` finds the kernel.
func @softmax(%x: tensor<f32, ?Nx8>) -> tensor<f32, ?Nx8> {
  %max = reduce_max(%x) axes[1] keepdims[true] -> tensor<f32, ?Nx1>
  %maxb = broadcast_to(%max) result_shape[?N, 8] -> tensor<f32, ?Nx8>
  %shift = sub(%x, %maxb) -> tensor<f32, ?Nx8>
  %e = exp(%shift) -> tensor<f32, ?Nx8>
  %sum = reduce_sum(%e) axes[1] keepdims[true] -> tensor<f32, ?Nx1>
  %sumb = broadcast_to(%sum) result_shape[?N, 8] -> tensor<f32, ?Nx8>
  %p = div(%e, %sumb) -> tensor<f32, ?Nx8>
  return %p
}
"""
LAYER = """\
# A layer of a network: relu(x w + b).
%0 = Input {name=x} : tensor<f32[4, 8]>
%1 = Input {name=w} : tensor<f32[8, 16]>
%2 = Input {name=b} : tensor<f32[16]>
%3 = MatMul (%0, %1)
%4 = Add (%3, %2)
%5 = Relu (%4)
outputs: %5
"""
PRODUCT = """\
{"uops": [
  {"id": "a", "uop": "INPUT", "arg": {"tensor_id": "A", "dtype": "fp32", "shape": ["M", "K"]}},
  {"id": "b", "uop": "INPUT", "arg": {"tensor_id": "B", "dtype": "fp32", "shape": ["K", "N"]}},
  {"id": "a3", "uop": "RESHAPE", "src": ["a"], "arg": {"result_shape": ["M", "K", 1]}},
  {"id": "b3", "uop": "RESHAPE", "src": ["b"], "arg": {"result_shape": [1, "K", "N"]}},
  {"id": "ae", "uop": "EXPAND", "src": ["a3"], "arg": {"result_shape": ["M", "K", "N"]}},
  {"id": "be", "uop": "EXPAND", "src": ["b3"], "arg": {"result_shape": ["M", "K", "N"]}},
  {"id": "m", "uop": "MUL", "src": ["ae", "be"]},
  {"id": "c", "uop": "REDUCE", "src": ["m"], "arg": {"op": "SUM", "axes": [1], "dtype": "fp32"}}
], "outputs": ["c"]}
"""
SCALE = """\
// Twice a tile: load, add, store, with an event between the pipes.
func.func @double(%x: pto.memref<32x32xf32>, %y: pto.memref<32x32xf32>) {
  %c0 = pto.constant 0 : index
  %t = pto.tile.load %x[%c0, %c0] : pto.memref<32x32xf32>, tile<32x32xf32>
  %d = pto.tile.add %t, %t : tile<32x32xf32>, tile<32x32xf32> -> tile<32x32xf32>
  pto.tile.store %d, %y[%c0, %c0] : pto.memref<32x32xf32>, tile<32x32xf32>
  return
}
"""
FILES = {"softmax.ptir": SOFTMAX, "layer.mind": LAYER, "product.json": PRODUCT, "double.pto": SCALE}
TRY = (
    "ptir run {0}/softmax.ptir --bind N=2 --random 0",
    "ptir opt {0}/softmax.ptir -p recognize,dce --check",
    "ptir translate {0}/layer.mind --to ptir",
    "ptir translate {0}/product.json --to ptir | ptir opt -p raise-contractions,canonicalize,dce",
    "ptir plan {0}/softmax.ptir --bind N=2",
    "ptir graph {0}/softmax.ptir --bind N=2 -p canonicalize,recognize,dce -o softmax.html",
    "ptir run {0}/double.pto --random 0",
)
