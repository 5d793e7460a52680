// FAIL[1]: ptir verify %s
module {
  func.func public @main(%x: tensor<2x4xf32>, %w: tensor<4x3xf32>, %i: tensor<2x4xi32>) -> tensor<2x4xf32> {
    %0 = stablehlo.broadcast_in_dim %w, dims = [0, 2] : (tensor<4x3xf32>) -> tensor<4x3x5xf32>
    return %x : tensor<2x4xf32>
  }
}
