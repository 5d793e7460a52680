"""XLA by JAX: a program as a function that jit, grad and vmap take. The extra `xla`."""
