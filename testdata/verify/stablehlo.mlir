// FAIL[1]: ptir verify %s
func.func @main(%x: tensor<4xf32>, %t: tensor<2xf8E8M0FNU>) -> tensor<4xf32> {
  %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64}> : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.add %0, %x : tensor<4xf32>
  %2 = stablehlo.custom_call @my_kernel(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = stablehlo.transpose %x, dims = [1] : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
