# FAIL[2]: ptir translate testdata/plan/softmax.ptir
# FAIL[2]: ptir translate testdata/plan/softmax.ptir -o %t/x.json
# FAIL[2]: ptir translate testdata/plan/softmax.ptir -o %t/x.text
# RUN: ptir translate testdata/plan/softmax.ptir -o %t/x.mind
# RUN: ptir info %t/x.mind
