// FAIL[1]: ptir verify %s
module {
  func.func public @main(%x: tensor<2x4xf32>, %n: tensor<i32>) -> tensor<2x4xf32> {
    %0 = stablehlo.pad %x, %x, low = [0, 0], high = [0, 1], interior = [0, 0] : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x5xf32>
    return %x : tensor<2x4xf32>
  }
}
