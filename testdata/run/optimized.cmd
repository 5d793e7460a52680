# RUN: ptir opt testdata/opt/default.ptir | ptir run - --random 0 --precision 4
