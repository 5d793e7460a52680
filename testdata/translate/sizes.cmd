# RUN: ptir translate --to ptir --check testdata/tiny/seed_5_2_conv2d.json
