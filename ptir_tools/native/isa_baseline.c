/* The kernels for any machine. */
#define ISA baseline
#define W 4
#define MR 4
#define NRV 2
#define IG 2
#include "isa.inl"
