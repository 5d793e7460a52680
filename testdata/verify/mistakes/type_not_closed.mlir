// FAIL[1]: ptir verify %s
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = stablehlo.add %x, %x : tensor<2x4xf32
  return %0 : tensor<2x4xf32>
}
