// FAIL[1]: ptir verify %s
module {
  func.func public @main(%x: tensor<2x4xf32>, %w: tensor<4x3xf32>, %i: tensor<2x4xi32>) -> tensor<2x4xf32> {
    %0 = stablehlo.add %x %x : tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
