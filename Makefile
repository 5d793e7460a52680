.PHONY: test bless pages lint types bench asan ubsan tsan
test:  ## the whole suite
	python -m pytest -n auto
bless:  ## rewrite golden files and generated pages from what the tool prints now; read the diff
	python -m pytest --bless
pages:  ## rewrite what is made from declarations alone: docs, the builder's stub, the grammars of editors, the record of random programs
	python -m pytest --bless tests/test_docs.py tests/rewrite/test_rules_docs.py tests/ptir/test_build.py tests/tools/test_census.py tests/tools/test_editors.py
lint:  ## ruff, style and format
	ruff check . && ruff format --check .
types:  ## mypy, over the tree as it will be installed
	@rm -rf build/types && mkdir -p build/types/ptir_tools
	@ln -s $(CURDIR)/ptir_tools/* $(CURDIR)/grammars $(CURDIR)/passes build/types/ptir_tools/
	cd build/types && python -m mypy --config-file ../../pyproject.toml
bench:  ## ratios to peers; needs the extra `bench`
	python -m tests.bench
asan:  ## the native tests under AddressSanitizer
	python -m tests.sanitize address
ubsan:  ## the native tests under UndefinedBehaviorSanitizer
	python -m tests.sanitize undefined
tsan:  ## the native tests under ThreadSanitizer
	python -m tests.sanitize thread
