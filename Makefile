# The project's tasks. A fresh machine needs Python 3.11 or newer and make; pip fetches the rest into .venv.
# Another interpreter: make PYTHON=python3.13 test

PYTHON ?= python3
# An environment of your own in .venv stays as it is.
VENV := $(if $(and $(wildcard .venv),$(if $(wildcard .venv/.made-with-*),,own)),.venv-make,.venv)
RUN := $(VENV)/bin/python
# One stamp per interpreter and per extra: a second run installs nothing, another PYTHON builds .venv again.
MADE := $(VENV)/.made-with-$(subst /,-,$(PYTHON))
# Compiling all that is fetched takes a third of the time, and most of it is never imported.
INSTALL = $(RUN) -m pip install --quiet --quiet --disable-pip-version-check --no-compile --editable

# torch is large: an environment of its own, and never in CI.
MODEL := $(VENV)-embeddings

.PHONY: help demo shared context prepare test check reference bench peers embeddings storm fairness clean
help:
	@echo "make demo    five facts, a correction, undo and a kill on one screen; with [local] a library asked by meaning"
	@echo "make quick   run the pages' sessions and a tenth of the tests, in half a minute"
	@echo "make context  commit three sessions, ask, edit, forget: the context engine on one screen"
	@echo "make shared  let a LangGraph agent on two machines share one memory, through a kill and a failover; needs PostgreSQL"
	@echo "make test    run every test, README sessions included"
	@echo "make check   lint and type-check"
	@echo "make reference  make docs/reference.md of the docstrings and the commands"
	@echo "make bench   measure, beside sqlite3 and other peers (some minutes)"
	@echo "make peers   run other projects' own tests on the adapters; fetches them   (some minutes, Node for one of them)"
	@echo "make embeddings  measure what embeddings add, with a small model that needs no network   (half an hour)"
	@echo "make storm   the long tests: kills, power cuts, failing disks   (an hour)"
	@echo "make fairness  let machines near and far write to one tree; how long each waits   (two minutes, needs PostgreSQL)"
	@echo "make clean   remove .venv and caches"

demo: $(VENV)/.installed-cli
	@$(RUN) examples/demo.py

# What a newcomer reads and tries: every line of the README, the core's own sessions, memory, words.
quick: $(VENV)/.installed-test
	$(RUN) -m pytest --numprocesses auto Agent/keyword_tree.py Agent/models/lexical_client.py Agent/tests/clients/test_lexical_client.py \
		Agent/tests/memory/test_store.py Agent/tests/test_house.py Agent/tests/test_pages.py Agent/tests/examples \
		--ignore Agent/tests/examples/test_two_machines.py --ignore Agent/tests/examples/test_adapters.py

context: $(VENV)/.installed
	@$(RUN) examples/context_engine_day.py

shared: $(VENV)/.installed-test
	@$(RUN) examples/two_machines.py

prepare: $(VENV)/.installed-test $(VENV)/mcp-1 $(VENV)/oldest-cli

test: prepare
	$(RUN) -m pytest --numprocesses auto --dist worksteal

check: $(VENV)/.installed-check
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest Agent/tests/test_house.py

reference: $(VENV)/.installed-test
	$(RUN) -m Agent.tests.support.reference

storm: $(VENV)/.installed-test
	KEYWORD_TREE_STORM=1 $(RUN) -m pytest -s Agent/tests/store Agent/tests/methods/test_machine.py Agent/tests/methods/test_properties.py Agent/tests/finding/test_ranking.py \
		Agent/tests/context_engine Agent/tests/formats/test_formats.py Agent/tests/memory \
		Agent/tests/shared_tree/test_storm.py Agent/tests/knowhub/test_leaks.py Agent/tests/knowhub/test_processes.py Agent/tests/knowhub/test_server.py

fairness: $(VENV)/.installed-test
	@$(RUN) -m Agent.tests.shared.fairness --disk

bench: $(VENV)/.installed
	@$(RUN) -m benchmarks

peers: $(VENV)/.installed-peers $(VENV)/mem0
	@$(RUN) -m benchmarks.peers

embeddings: $(MODEL)/.installed
	@$(MODEL)/bin/python -m benchmarks.bench_finding --only vectors --stores $(MODEL)

$(MODEL)/.installed: pyproject.toml
	@$(PYTHON) -m venv --clear $(MODEL)
	@$(MODEL)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[local,benchmarks]'
	@touch $@

# The first generation of the MCP SDK, beside the second one that is installed: both serve the tests.
$(VENV)/mcp-1: $(MADE)
	@rm -rf $@ && $(RUN) -m pip install --quiet --quiet --disable-pip-version-check --no-compile --target $@ 'mcp<2'

# The oldest click and rich that pyproject.toml allows: one test runs the command line with them.
$(VENV)/oldest-cli: $(MADE)
	@rm -rf $@ && $(RUN) -m pip install --quiet --quiet --no-warn-conflicts --disable-pip-version-check --no-compile --target $@ click==8.4.0 rich==14.3.0

# Has dependencies of its own; what it cannot bring, `make peers` says and passes over.
$(VENV)/mem0: $(MADE)
	@rm -rf $@; $(RUN) -m pip install --quiet --quiet --disable-pip-version-check --no-compile --target $@ mem0ai==2.2.1 || mkdir -p $@

clean:
	rm -rf $(VENV) $(MODEL) .peers build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find Agent examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "KeywordTree needs Python 3.11 or newer, and '$(PYTHON)' is not: try make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test ! -e $(VENV) || ls $(VENV)/.made-with-* >/dev/null 2>&1 || { \
		echo "$(VENV) was not made by make, and would be emptied: move it away, or say make VENV=.venv-make $(MAKECMDGOALS)"; exit 1; }
	@echo "preparing $(VENV) (once) …"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: $(MADE) pyproject.toml
	@$(INSTALL) .
	@touch $@

$(VENV)/.installed-%: $(MADE) pyproject.toml
	@$(INSTALL) '.[$*]'
	@touch $@ $(VENV)/.installed
