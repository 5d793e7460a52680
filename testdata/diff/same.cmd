# RUN: ptir diff testdata/mind/03_ebnf_dialect.mind.ir testdata/mind/03b_same_program_canonical.mind.ir
