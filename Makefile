# chord: everything a newcomer types. Needs python3 (3.11 or newer) with pip, and make.

PYTHON ?= python3
RUN := .venv/bin
LONG := restart,blackout,meddle,hiccup,freeze,oneway,partition,adjacent,forget,return
PYTEST := $(RUN)/python -m pytest -n auto --dist loadgroup

# Where this is set, as in many containers, every command would compile its modules anew: half of what it takes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test check thorough lint types docs mutants bench bench-others bench-compiled test-compiled wheels sim lab cluster soak clean screenshots vendor

help:  ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 20

venv:  ## build .venv with everything in it
	@command -v $(PYTHON) >/dev/null || { echo "chord: there is no $(PYTHON) here; install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) tools/venv.py

demo: venv  ## eight peers on this machine: store, look up, kill one, heal
	@$(RUN)/python tools/demo.py

test: venv  ## the fast tests, one to three minutes
	@$(PYTEST) -q -m "not slow and not thorough"

lint: venv
	@$(RUN)/ruff check .
	@$(RUN)/codespell

types: venv
	@$(RUN)/mypy

docs: venv  ## the documentation as a site, offline and with every link checked; out/docs/index.html
	@NO_MKDOCS_2_WARNING=1 $(RUN)/python -m mkdocs build
	@echo "chord: open out/docs/index.html; to search, run: python -m http.server -d out/docs"

check: lint types test  ## what CI runs: lint, types, the fast tests and the slow ones, which build the site
	@$(PYTEST) -q -m "slow and not thorough" --durations=20

thorough: venv  ## every test there is, with more seeds and larger rings than CI has time for; an hour
	@$(PYTEST) -q --hypothesis-profile thorough

screenshots: venv  ## the dashboard's pictures in docs/images, and every page in out/screens; needs chromium
	@$(RUN)/python tools/screenshots.py
	@$(RUN)/python tools/screenshots.py out/screens

vendor: venv  ## renew the dashboard's vendored files from the npm registry; needs npm
	@$(RUN)/python tools/vendor.py

mutants: venv  ## plant every known bug, and see it caught
	@$(RUN)/python -m tests.mutants

bench: venv  ## every figure against its bar, half an hour: RPC, growth, simulator, database, replicas, hand-off; out/bench
	@$(RUN)/python -m benchmarks

bench-others: venv  ## chord beside kademlia, py-libp2p, OpenDHT, Redis and etcd, fifteen minutes; tables and a picture in out/others
	@$(RUN)/python -m benchmarks.others

wheels: venv  ## a wheel with some modules compiled by mypyc, in dist; needs gcc, takes minutes
	@CHORD_COMPILED=1 $(RUN)/python -m pip wheel -q --no-deps -w dist . 2>/dev/null || \
		CHORD_COMPILED=1 $(PYTHON) -m pip --python $(RUN)/python wheel -q --no-deps -w dist .

bench-compiled: venv  ## the compiled wheel in dist beside pure Python, processor time of one operation
	@$(RUN)/python -m benchmarks.compiled

test-compiled: venv  ## the tests that start processes, with the compiled wheel in dist
	@$(RUN)/python -m benchmarks.compiled --only install
	@TESTED_PYTHON=$(CURDIR)/out/compiled/bin/python $(PYTEST) -q tests/cli tests/real -m "not thorough"

sim: venv  ## the published experiments with the real node, ten minutes; tables and plots in out/sim
	@$(RUN)/chord sim paper --scale standard

lab: venv  ## every sharding scheme side by side, and rings of a million nodes, five minutes; tables and plots in out/lab
	@$(RUN)/chord lab all

cluster: venv  ## the lab's tests on Dask's local cluster; installs Dask into .venv
	@$(RUN)/python -m pip install -q distributed 2>/dev/null || $(PYTHON) -m pip --python $(RUN)/python install -q distributed
	@$(PYTEST) -q tests/optional

soak: venv  ## processes killed 300 times under load; ten runs of a hundred thousand writes; twenty thousand short runs; hours
	@mkdir -p out
	@$(RUN)/python -m tests.real.soak --directory out
	@$(RUN)/chord sim run --seeds 1-10 --nodes 12 --successors 4 --replicas 3 --fidelity messages --faults $(LONG) \
		--clients 32 --client-pause 0.1 --reads 0.15 --pause 1 --membership 1000 --writes 100000 --shares
	@$(RUN)/chord sim run --seeds 0-19999

clean:  ## forget what was built
	rm -rf .venv out dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
