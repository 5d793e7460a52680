// FAIL[1]: ptir verify %s
module {
  func.func public @main(%x: tensor<2x4xf32>, %n: tensor<i32>) -> tensor<2x4xf32> {
    %0:2 = stablehlo.while(%a = %x, %b = %n) : tensor<2x4xf32>, tensor<i32>
     cond {
      stablehlo.return %b : tensor<i32>
    } do {
      stablehlo.return %a, %b : tensor<2x4xf32>, tensor<i32>
    }
    return %0#0 : tensor<2x4xf32>
  }
}
