# FAIL[2]: ptir bisect -p cse,dce testdata/opt/data/steps.ptir --check 'grep nothing {} /no/such/file'
