# RUN: ptir run testdata/pto/kernels/flash_a3.pto --random 0 --report -o %t/out.npz
