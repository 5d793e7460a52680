# FAIL[1]: ptir bisect testdata/opt/data/steps.ptir --check 'sh -c "test $(grep -c mul $0) = 2" {}' -p canonicalize,cse
