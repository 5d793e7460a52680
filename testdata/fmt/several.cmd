# FAIL[2]: ptir fmt testdata/fmt/check.ptir testdata/fmt/diff.ptir
