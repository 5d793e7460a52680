# FAIL[1]: ptir fmt --check --diagnostics github testdata/fmt/messy.ptir testdata/verify/ok.ptir
