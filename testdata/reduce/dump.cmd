# RUN: ptir reduce testdata/ptir/dump/d04_gpt2_block_prefill.dump.ptir --check 'grep -q DotGeneral'
