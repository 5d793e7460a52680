// FAIL[1]: ptir verify %s
func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}
