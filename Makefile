# Everything goes into .venv and build/; bare `make` lists the targets.
# Another Python: make setup PYTHON=/path/to/python. More for pytest: make test ARGS="-k failover".

PYTHON ?=
ARGS ?=

BIN := .venv/bin
READY := .venv/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
SPARK := sh .ci/with-java

# Spark's workers run the project's Python; a Spark or Python of the caller's does not leak in. Compiled modules are kept.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
export SPARK_LOCAL_IP ?= 127.0.0.1
unexport SPARK_HOME SPARK_CONF_DIR PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run demo test quick slow oldest-numba brokers stores schedulers cluster bench bench-compare bench-against check docs docs-update messages fmt wheel clean distclean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make .venv with everything that was tested, fetch Delta's jars
	@echo "Ready: $(BIN)/subreplay --help"

run: $(READY) ## run the main job on bundled real recordings, print the path of its HTML report
	@$(SPARK) $(BIN)/subreplay demo --engine spark --out build/demo

demo: run ## the same as run

test: $(READY) ## run every test but slow ones (some of them only: ARGS="-k failover")
	@$(SPARK) sh .ci/test $(BIN)/python $(ARGS)

quick: $(READY) ## run one case of each test of the pure core, and few examples of its properties
	@$(BIN)/python -m pytest -q -n auto --dist loadfile --few 1 --hypothesis-profile=few \
		-m "not spark and not long and not slow and not brokers and not stores" --ignore-glob='*/spark/*' $(ARGS)

slow: $(READY) ## run what test leaves out: kills, a cluster, spark-submit, Spark Connect, large keys, faults of an older broker
	@$(SPARK) $(BIN)/python -m pytest -m slow $(ARGS)

oldest-numba: build/oldest-numba/.ready ## run the tests of the kernels with the oldest numba that pyproject.toml takes
	@PYTHONPATH=build/oldest-numba NUMBA_CACHE_DIR=build/oldest-numba/cache $(BIN)/python -m pytest -q tests/kernels tests/hashing $(ARGS)

build/oldest-numba/.ready: $(READY)
	@$(PIP) install -q --no-deps --upgrade --target build/oldest-numba numba==0.65.0 llvmlite==0.47.0
	@touch $@

brokers: $(READY) ## fetch a real Kafka and a real Pulsar with their clients, and run the tests that start them
	@$(PIP) install -q -c constraints.txt -e '.[brokers]'
	@$(SPARK) $(BIN)/python .ci/fetch_test_jars.py brokers
	@$(SPARK) $(BIN)/python -m pytest -m brokers $(ARGS)

stores: $(READY) build/stores/.ready ## fetch an S3 server (moto) and Hadoop's client for S3 (640 MB), run the tests that use them
	@$(SPARK) $(BIN)/python .ci/fetch_test_jars.py stores
	@$(SPARK) $(BIN)/python -m pytest -m stores $(ARGS)

build/stores/.ready: $(READY)
	@$(PIP) install -q --upgrade --target build/stores moto==5.2.5 flask==3.1.3 flask-cors==6.0.5 py-partiql-parser==0.6.3
	@touch $@

schedulers: $(READY) build/schedulers/.ready ## install Airflow and Dagster, run the DAG and the asset of the documentation
	@$(BIN)/python -m pytest -m slow tests/deploy $(ARGS)

build/schedulers/.ready: $(READY)
	@for each in apache-airflow==3.3.2 dagster==1.13.29; do \
		$(BIN)/python -m venv build/schedulers/$${each%%=*} && build/schedulers/$${each%%=*}/bin/pip install -q $$each || exit 1; done
	@touch $@

cluster: $(READY) ## start a standalone cluster of two workers on loopback, and run the tests that disturb it
	@$(SPARK) $(BIN)/python -m pytest -m slow tests/cluster $(ARGS)

bench: $(READY) ## print what folds, replays and audits cost here, write it to build/bench (less of it: ARGS=--quick)
	@$(SPARK) $(BIN)/python -m tests.bench $(ARGS)

bench-compare: $(READY) ## print two files of build/bench side by side: OLD=file NEW=file
	@$(BIN)/python -m tests.bench.compare $(OLD) $(NEW)

bench-against: $(READY) ## print CPU seconds of audits by the sources of a commit and by these, in turn: OLD=commit
	@mkdir -p build/trees/$(OLD) && git archive $(OLD) src | tar -x -C build/trees/$(OLD)
	@$(BIN)/python -m tests.bench.against build/trees/$(OLD)

check: $(READY) docs ## lint (ruff), types (mypy), import contracts (import-linter), spelling (codespell), the docs
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell src docs jobs conf *.md
	@$(BIN)/python -m tests.language check

docs: $(READY) ## build the documentation into build/docs; a broken link or a page that no menu names fails
	@$(BIN)/python -m tests.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml

docs-update: $(READY) ## write the generated pages and what commands on pages print
	@$(BIN)/python -m tests.docs
	@SUBREPLAY_SNAPSHOTS=write $(BIN)/python -m pytest -q tests/docs/test_commands.py

messages: $(READY) ## print every string that a user may see, with its place
	@$(BIN)/python -m tests.language messages

fmt: $(READY) ## format the code, apply the linter's safe fixes
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

wheel: $(READY) ## build the wheel and the source archive into dist/
	@mkdir -p build
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir dist >build/wheel.log 2>&1 || { cat build/wheel.log; exit 1; }
	@ls dist/*

clean: ## remove what runs, tests and builds left behind
	@rm -rf build dist spark-warehouse metastore_db derby.log .pytest_cache .hypothesis .ruff_cache .mypy_cache .import_linter_cache
	@find src tests jobs notebooks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	@rm -rf .venv

# Java comes first, as the quickest to fail. A .venv that is half made, or was moved here, is made anew.
$(READY): pyproject.toml constraints.txt .ci/find-python .ci/with-java .ci/fetch_jars.py
	@$(SPARK)
	@test ! -L .venv || { echo ".venv is a link; remove it, or set up the checkout that it names"; exit 1; }
	@$(BIN)/pip --version 2>/dev/null | grep -qF '$(CURDIR)/.venv/' || { \
		python=$$(sh .ci/find-python $(PYTHON)) && echo "Making .venv with $$python ..." && \
		"$$python" -m venv --clear .venv; }
	@echo "Installing the packages of constraints.txt ..."
	@$(PIP) install -q -U -c constraints.txt pip
	@$(PIP) install -q -c constraints.txt --build-constraint constraints.txt -e '.[spark,test,dev]'
	@echo "Fetching the Delta jars, trying Spark ..."
	@$(SPARK) $(BIN)/python .ci/fetch_jars.py >.venv/fetch_jars.log 2>&1 || { \
		tail -n 20 .venv/fetch_jars.log; echo "Spark with Delta did not start: see .venv/fetch_jars.log"; exit 1; }
	@touch $@
