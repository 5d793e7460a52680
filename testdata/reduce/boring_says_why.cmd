# FAIL[2]: ptir reduce testdata/opt/data/steps.ptir --check 'grep nothing {} /no/such/file'
