# Everything is done through these targets: by hand, in CI, and wherever a document names a command.
PYTHON ?= python3
RUN := .venv/bin
# Some environments forbid Python to write bytecode: every process would then compile again what it imports, tests above all.
unexport PYTHONDONTWRITEBYTECODE
READY := .venv/.ready
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weft-tools
OPENCODE := $(CACHE)/opencode-1.1.34
PYRIGHT := $(CACHE)/pyright-1.1.414
AXE := $(CACHE)/axe-core-4.14.0
# The drivers for real clients are kept in another repository; CLIENTS="--only tui --patience 3" chooses among them.
WEFT_DRIVERS ?= ../shared/tools
# Three processes on two cores: many tests wait for a process, a terminal or a browser. `make check` runs tests/architecture.
TESTS := WEFT_PYRIGHT=$(PYRIGHT)/node_modules/.bin/pyright WEFT_AXE=$(AXE)/node_modules/axe-core/axe.min.js $(RUN)/pytest -n 3 -m "not opencode" --ignore=tests/architecture

.PHONY: help setup demo fmt check test-fast test test-random test-opencode test-firefox test-clients test-schema mutate simulate fuzz-shell soak cov cluster bench shape docs reference picture screenshots vendor dist sbom release clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

setup: $(READY) ## create .venv with everything needed to work here

# A newer pip writes a command that starts faster. Bytecode is compiled here because the first command would otherwise do it, and take twice as long.
$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv (once; about a minute)"
	@$(PYTHON) -m venv .venv && $(RUN)/pip install -qq --disable-pip-version-check -U pip -c constraints.txt
	@$(RUN)/pip install -qq -e '.[dev]' -c constraints.txt
	@$(RUN)/python -m compileall -q -j 0 src .venv/lib && touch $(READY)

demo: $(READY) ## run a whole session with a scripted model: no key, no network
	@$(RUN)/weft demo

fmt: $(READY) ## format, and fix what can be fixed
	$(RUN)/ruff check -q --fix-only . && $(RUN)/ruff format .

# One core checks types, which takes as long as all tests of the architecture, and the other ones run these.
check: $(READY) ## format, lint, types, layers, shape, change fragment
	$(RUN)/ruff format --check . && $(RUN)/ruff check . && $(RUN)/python tools/changelog.py check
	@$(RUN)/mypy & typed=$$!; $(RUN)/lint-imports && $(RUN)/pytest -n 2 tests/architecture; tested=$$?; wait $$typed && exit $$tested

# Each process imports and collects all tests, which takes it seven seconds of a core: no more of them than `make test` has.
test-fast: $(READY) ## run unit, contract and architecture tests without Postgres, with few examples for properties
	$(RUN)/pytest -n 3 --hypothesis-profile=fast -m "not opencode and not slow" tests/unit tests/contract tests/architecture

test: $(READY) $(PYRIGHT)/node_modules/.bin/pyright $(AXE)/node_modules/axe-core/axe.min.js ## run every test that needs neither the network nor OpenCode
	$(TESTS) tests

test-random: $(READY) ## try each property with a thousand random examples; a failure prints a patch that keeps it as an @example; RANDOM_TESTS=tests/unit/model EXAMPLES=20000
	WEFT_EXAMPLES=$(or $(EXAMPLES),1000) $(RUN)/pytest -n 2 --hypothesis-profile=random -m "hypothesis and not opencode" --timeout=0 $(or $(RANDOM_TESTS),tests/unit tests/contract tests/integration)

test-opencode: $(READY) $(OPENCODE)/node_modules/.bin/opencode ## compare with the real OpenCode 1.1.34
	WEFT_OPENCODE=$(OPENCODE)/node_modules/.bin/opencode $(if $(wildcard tests/opencode/test_*.py),$(RUN)/pytest -n 3 --dist loadfile -m opencode tests/opencode,true)

$(OPENCODE)/node_modules/.bin/opencode:
	npm install --prefix $(OPENCODE) --ignore-scripts --no-audit --no-fund --silent opencode-ai@1.1.34

# Without npm, tests that need pyright are skipped; in CI they fail.
$(PYRIGHT)/node_modules/.bin/pyright:
	@npm install --prefix $(PYRIGHT) --ignore-scripts --no-audit --no-fund --silent pyright@1.1.414 || echo "could not install pyright; going on without"

# Without npm, the checks of accessibility are skipped; in CI they fail.
$(AXE)/node_modules/axe-core/axe.min.js:
	@npm install --prefix $(AXE) --ignore-scripts --no-audit --no-fund --silent axe-core@4.14.0 || echo "could not install axe-core; going on without"

# What is left out needs something that Playwright cannot do with Firefox: phones, themes, the clipboard, downloads, or letting a page off its policy.
test-firefox: $(READY) ## run the tests of the page in the Firefox of this machine
	WEFT_TEST_BROWSER=firefox $(RUN)/pytest -k "not phone and not serious and not copied and not exported and not saved_as" $(FIREFOX) tests/e2e/test_page_session.py tests/e2e/test_page_sessions.py tests/e2e/test_page_everywhere.py

test-clients: $(READY) ## OpenCode's own terminal UIs, `run` and SDKs against `weft serve`; about a quarter of an hour
	$(RUN)/python tools/clients.py --drivers $(WEFT_DRIVERS) --cache $(CACHE)/clients $(CLIENTS)

test-schema: $(READY) ## send thousands of requests generated from GET /doc, with schemathesis
	$(RUN)/python tools/schema.py --cache $(CACHE)/clients $(SCHEMA)

mutate: $(READY) ## break the source on purpose, line by line, and see whether a test notices; MUTATE="--package shell"
	$(RUN)/python tools/mutate.py $(MUTATE)

simulate: $(READY) ## run the engine in simulated worlds with kills, power failures and failing disks; SIMULATE="--seeds 10000"
	PYTHONHASHSEED=0 $(RUN)/python tools/simulate.py $(SIMULATE)

fuzz-shell: $(READY) ## run shell commands that were judged harmless in a sandbox, and see whether they are; FUZZ="--seed 2 --count 50000"
	$(RUN)/python tools/fuzz_shell.py $(FUZZ)

soak: $(READY) ## work one server for ten minutes, and see whether it grows; SOAK="--minutes 120 --store sqlite:PATH"
	$(RUN)/python tools/soak.py $(SOAK)

cov: $(READY) $(PYRIGHT)/node_modules/.bin/pyright $(AXE)/node_modules/axe-core/axe.min.js ## run the tests, and list branches that they never took
	$(TESTS) --cov=weft --cov-branch --cov-report=term-missing:skip-covered tests

cluster: $(READY) ## start Postgres, two nodes and nginx on this machine, for trying a cluster; CLUSTER="--port 0 --dir PATH"
	@$(RUN)/python deploy/try_cluster.py $(CLUSTER)

bench: $(READY) ## measure speed on this machine
	@for each in start_up listing fork tokens running undo terminal page first_hour; do echo "== $$each"; $(RUN)/python bench/$$each.py || exit 1; done

shape: $(READY) ## list the largest modules and functions
	@$(RUN)/python tests/architecture/shape.py

docs: $(READY) ## build the documentation site into site/, offline; fail on a dead link
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict --quiet

reference: $(READY) ## write the generated pages of docs/, and the output that the tutorial shows
	$(RUN)/python tools/reference.py && $(RUN)/python tools/tutorial.py

picture: $(READY) ## run weft in an emulated terminal and draw docs/terminal.svg
	$(RUN)/python tools/picture.py

screenshots: $(READY) ## open every screen of the page in a browser, and save it into docs/screenshots/
	$(RUN)/python tools/screenshots.py

vendor: $(READY) ## fetch the vendored scripts of the page from npm, and check them against their manifest
	$(RUN)/python tools/vendor.py $(VENDOR)

# The time of the last commit instead of now, and modes of files that depend on nobody's umask: whoever builds this commit gets the same
# wheel, byte for byte.
dist: $(READY) ## build wheel and source archive into dist/
	rm -rf dist && umask 022 && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(RUN)/python -m build --no-isolation

sbom: $(READY) ## write the bill of materials into dist/: every part that is shipped or installed, with its licence
	$(RUN)/python tools/sbom.py

release: $(READY) ## fold changes/ into CHANGELOG.md under the version of src/weft/version.py
	$(RUN)/python tools/changelog.py release

clean: ## remove everything that was generated
	rm -rf .venv build dist site .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
