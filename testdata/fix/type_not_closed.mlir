// RUN: ptir fix %s
func.func @main(%x: tensor<2x4xf32>, %y: tuple<tensor<i32, tensor<i32>>, %z: tensor<2x4xf32) -> tensor<2x4xf32> {
  %0 = stablehlo.exponential %x : tensor<2x4xf32>
  return %0 : tensor<2x4xf32
}
