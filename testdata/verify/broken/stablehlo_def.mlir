// FAIL[1]: ptir verify %s
module {
  func.fnc @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    return %x : tensor<2xf32>
  }
}
