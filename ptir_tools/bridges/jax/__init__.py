"""JAX: a program as a function that jit, grad and vmap take, and its StableHLO."""
