# The only door: what is done by hand, what CI does, and what you are told to do elsewhere are these targets.
PYTHON ?= python3
RUN := .venv/bin
READY := .venv/.ready
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weft-tools
OPENCODE := $(CACHE)/opencode-1.1.34
# The drivers that judge real clients are kept apart; CLIENTS="--only tui --patience 3" chooses among them.
WEFT_DRIVERS ?= ../shared/tools
TESTS := $(RUN)/pytest -n 2 -m "not opencode"

.PHONY: help setup demo fmt check test test-opencode test-clients test-schema fuzz-shell cov bench shape release clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup: $(READY) ## the virtual environment in .venv, with everything needed to work here

# A newer pip writes a command that starts faster. Bytecode is compiled here because some environments forbid Python to do it later, and starting up then takes twice as long.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv && $(RUN)/pip install -q --disable-pip-version-check -U pip -c constraints.txt
	$(RUN)/pip install -q -e '.[dev]' -c constraints.txt
	env -u PYTHONDONTWRITEBYTECODE $(RUN)/python -m compileall -q src .venv/lib && touch $(READY)

demo: $(READY) ## a whole session with a scripted model: no key, no network
	$(RUN)/weft demo

fmt: $(READY) ## format, and mend what can be mended
	$(RUN)/ruff check -q --fix-only . && $(RUN)/ruff format .

check: $(READY) ## format, lint, types, layers, shape, change fragment
	$(RUN)/ruff format --check . && $(RUN)/ruff check . && $(RUN)/mypy && $(RUN)/lint-imports
	$(RUN)/pytest tests/architecture && $(RUN)/python tools/changelog.py check

test: $(READY) ## everything that needs neither network nor services
	$(TESTS) tests

test-opencode: $(READY) $(OPENCODE)/node_modules/.bin/opencode ## side by side with the real OpenCode 1.1.34
	WEFT_OPENCODE=$(OPENCODE)/node_modules/.bin/opencode $(if $(wildcard tests/opencode/test_*.py),$(RUN)/pytest -n 2 --dist loadfile -m opencode tests/opencode,true)

$(OPENCODE)/node_modules/.bin/opencode:
	npm install --prefix $(OPENCODE) --ignore-scripts --no-audit --no-fund --silent opencode-ai@1.1.34

test-clients: $(READY) ## OpenCode's own terminal UIs, `run` and SDKs against `weft serve`; about a quarter of an hour
	$(RUN)/python tools/clients.py --drivers $(WEFT_DRIVERS) --cache $(CACHE)/clients $(CLIENTS)

test-schema: $(READY) ## thousands of requests made up from GET /doc, by schemathesis
	$(RUN)/python tools/schema.py --cache $(CACHE)/clients $(SCHEMA)

fuzz-shell: $(READY) ## shell commands that are judged harmless, run in a sandbox: whether they are; FUZZ="--seed 2 --count 50000"
	$(RUN)/python tools/fuzz_shell.py $(FUZZ)

cov: $(READY) ## the tests, and which branches they never took
	$(TESTS) --cov=weft --cov-branch --cov-report=term-missing:skip-covered tests

bench: $(READY) ## how fast it is, on this machine, now
	@for each in start_up listing fork tokens running undo; do echo "== $$each"; $(RUN)/python bench/$$each.py || exit 1; done

shape: $(READY) ## how many modules, and the largest of them
	@$(RUN)/python tests/architecture/shape.py

release: $(READY) ## fold changes/ into CHANGELOG.md under the version of src/weft/version.py
	$(RUN)/python tools/changelog.py release

clean: ## remove what was made
	rm -rf .venv build dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
