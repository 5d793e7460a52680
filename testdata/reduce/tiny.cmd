# RUN: ptir reduce testdata/tiny/04_gemm_no_permute.json --check 'grep -q MUL'
