// A layer of a network as jax.jit lowers it: softmax(gelu(x w + b)).
module @jit_layer attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<2x4xf32>, %w: tensor<4x3xf32>, %b: tensor<3xf32>) -> (tensor<2x3xf32> {jax.result_info = ""}) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.add %0, %1 : tensor<2x3xf32>
    %3 = call @gelu(%2) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>
    %6 = stablehlo.subtract %3, %5 : tensor<2x3xf32>
    %7 = stablehlo.exponential %6 : tensor<2x3xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = "stablehlo.reduce"(%7, %cst_0) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg0: tensor<f32>, %arg1: tensor<f32>):
      %11 = stablehlo.add %arg0, %arg1 : tensor<f32>
      stablehlo.return %11 : tensor<f32>
    }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>
    %10 = stablehlo.divide %7, %9 : tensor<2x3xf32>
    return %10 : tensor<2x3xf32>
  }
  func.func private @gelu(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %cst = stablehlo.constant dense<0.707106769> : tensor<2x3xf32>
    %0 = stablehlo.multiply %arg0, %cst : tensor<2x3xf32>
    %1 = chlo.erf %0 : tensor<2x3xf32> -> tensor<2x3xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<2x3xf32>
    %2 = stablehlo.add %1, %cst_0 : tensor<2x3xf32>
    %cst_1 = stablehlo.constant dense<5.000000e-01> : tensor<2x3xf32>
    %3 = stablehlo.multiply %arg0, %cst_1 : tensor<2x3xf32>
    %4 = stablehlo.multiply %3, %2 : tensor<2x3xf32>
    return %4 : tensor<2x3xf32>
  }
}
