# Four words: make check, make test, make fix, make bench.
PYTHON ?= .venv/bin/python
FOLDERS = proto model wire storage raft metadata rpc node controller client broker jepsen bench cli tests

.PHONY: check test fix bench
check:
	$(PYTHON) -m ruff format --check $(FOLDERS)
	$(PYTHON) -m ruff check $(FOLDERS)
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

fix:
	$(PYTHON) -m ruff check --fix $(FOLDERS)
	$(PYTHON) -m ruff format $(FOLDERS)

bench:
	$(PYTHON) -m ottla.cli bench --help
