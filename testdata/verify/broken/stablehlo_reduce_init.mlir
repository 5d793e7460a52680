// FAIL[1]: ptir verify %s
func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<1xf32>
  %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<1xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
