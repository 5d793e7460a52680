# FAIL[1]: ptir translate testdata/ptir/dump/d11_quantize_round_trip.json --to mind
