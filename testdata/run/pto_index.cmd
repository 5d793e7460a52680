# FAIL[1]: ptir run testdata/pto/09_dynamic_valid.pto --random 0 --input vr=33 --input vc=1
