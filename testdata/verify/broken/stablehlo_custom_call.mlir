// FAIL[1]: ptir verify %s
module {
  func.func public @main(%x: tensor<2x4xf32>, %n: tensor<i32>) -> tensor<2x4xf32> {
    %0 = stablehlo.custom_call @my_kernel(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
