# make check, make test (the short form), make fix, make docs, make sim (ENGINE=whole SEED=7), make soak, make jepsen,
# make bench, make bench-gate, make test-versions, make wheel, make wheels, make test-compiled, make release.
PYTHON ?= .venv/bin/python
TESTS =
FOLDERS = proto model wire telemetry storage raft metadata rpc node controller client broker insight console pipeline testing jepsen bench cli tools tests

ENGINE ?= walk
SEED ?= 0
FOR ?= 60m
STORE ?= store
MIN_OPS ?= 200
JEPSEN_FOR ?= 30s
JEPSEN ?=
COMPILED = build/compiled

.PHONY: check test fix docs release sim soak jepsen jepsen-kill jepsen-partition jepsen-transactions jepsen-secure bench \
  bench-gate test-versions wheel wheels compiled-environment test-compiled bench-gate-compiled
check:
	$(PYTHON) -m ruff format --check $(FOLDERS)
	$(PYTHON) -m ruff check $(FOLDERS)
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest $(TESTS)

fix:
	$(PYTHON) -m ruff check --fix $(FOLDERS)
	$(PYTHON) -m ruff format $(FOLDERS)

# The reference pages, from the declarations.
docs:
	PYTHONPATH=tools $(PYTHON) -m ottla.tools.reference_pages docs

sim:
	$(PYTHON) -m ottla.cli world run --engine $(ENGINE) --seed $(SEED)

soak:
	$(PYTHON) -m ottla.cli world soak --for $(FOR) --seed $(SEED)

# Two runs on real processes under faults, with both clients: under two minutes with their verdicts.
jepsen: jepsen-kill jepsen-partition jepsen-transactions
jepsen-kill:
	$(PYTHON) -m ottla.cli jepsen run --workload queue,compacted,offsets,list-offsets --nemesis kill \
	  --for $(JEPSEN_FOR) --min-ops $(MIN_OPS) --store $(STORE) $(JEPSEN)
jepsen-partition:
	$(PYTHON) -m ottla.cli jepsen run --workload metadata,group,producer-ids --nemesis partition \
	  --for $(JEPSEN_FOR) --min-ops $(MIN_OPS) --store $(STORE) $(JEPSEN)

# The same three with TLS, certificates between nodes, logins and ACLs: `make jepsen JEPSEN=--secure`.
jepsen-secure:
	$(MAKE) jepsen JEPSEN=--secure

# Transactions are some ten requests each: what is enough load for others is not for them.
jepsen-transactions:
	$(PYTHON) -m ottla.cli jepsen run --workload transactions --nemesis kill,partition-one,pause \
	  --for $(JEPSEN_FOR) --min-ops 5 --store $(STORE) $(JEPSEN)

bench:
	$(PYTHON) -m ottla.cli bench --help

# Instructions of short paths, against bench/gate.json; --write makes what is counted the table.
bench-gate:
	$(PYTHON) -m ottla.bench.gate

# A quick form of the suite with Python 3.12 and 3.13, where they are.
test-versions:
	TESTS="$(TESTS)" .ci/versions

# A wheel whose hot modules are compiled (docs/compiled.md); for other machines, too, where auditwheel is.
wheel:
	rm -rf $(COMPILED)/wheel
	OTTLA_COMPILE=1 $(PYTHON) -m build --wheel --no-isolation --outdir $(COMPILED)/wheel .
	mkdir -p dist
	if $(PYTHON) -c 'import auditwheel' 2> /dev/null; \
	  then $(PYTHON) -m auditwheel repair --wheel-dir dist $(COMPILED)/wheel/*.whl; \
	  else cp $(COMPILED)/wheel/*.whl dist; fi

# Compiled wheels for other machines, one for each Python that is here.
wheels:
	mkdir -p dist
	PYTHON=$(PYTHON) .ci/wheels

# Source distribution, wheels, bill of materials, notes and SHA256SUMS of this version, in dist/.
RELEASE = PYTHONPATH=tools $(PYTHON) -m ottla.tools.release
release:
	$(RELEASE) check
	rm -rf dist
	$(PYTHON) -m build --no-isolation --outdir dist .
	if command -v "$${CC:-cc}" > /dev/null; \
	  then $(MAKE) wheels; \
	  else echo "There is no C compiler: no compiled wheel is built."; fi
	$(RELEASE) finish dist

# That wheel in an environment of its own, which finds all other packages where $(PYTHON) does.
compiled-environment: wheel
	rm -rf $(COMPILED)/environment
	$(PYTHON) -m venv $(COMPILED)/environment
	$(PYTHON) -c 'import sys; print(*(one for one in sys.path if one.endswith("-packages")), sep="\n")' \
	  > "$$($(COMPILED)/environment/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/others.pth"
	$(COMPILED)/environment/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(COMPILED)/wheel/*.whl
	$(COMPILED)/environment/bin/ottla version | grep compiled

test-compiled: compiled-environment
	$(COMPILED)/environment/bin/python -m pytest $(TESTS)

# The gate on instructions, of the compiled form: column `compiled` of its table.
bench-gate-compiled: compiled-environment
	$(COMPILED)/environment/bin/python -m ottla.bench.gate --table bench/gate.json
