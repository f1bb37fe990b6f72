# Needs Python 3.11 or newer, pip and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
# Windows (make from Git Bash or MSYS2) keeps programs of a venv in another folder.
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
EXE := .exe
else
BIN := $(VENV)/bin
endif
PEERS := .venv-peers
CODE := src tests scripts $(wildcard benchmarks)
COMPILE := $(BIN)/uv pip compile pyproject.toml --group build --universal \
  --python-version 3.11 --generate-hashes --no-header --quiet $(ARGS)

# Passed on to agents-ledger, pytest and uv: make test ARGS="-k fork"
ARGS ?=
MINUTES ?= 10
SHOTS ?= screenshots

# Python starts in a quarter of the time where it finds its modules compiled.
export PYTHONDONTWRITEBYTECODE :=

.DELETE_ON_ERROR:
.PHONY: help up dev test check format async bench soak reference pictures screenshots requirements clean

help:
	@echo "make up            set up, import, and open the Command Center"
	@echo "make test          run the tests, PostgreSQL included"
	@echo "make check         format, lint, types, layers, sizes"
	@echo "make format        let ruff put the format right"
	@echo "make async         write the asyncio face of the ledger from the synchronous one"
	@echo "make bench         measure the speed, write docs/benchmarks.md (ONLY=name for one part)"
	@echo "make peers         install what make bench compares with, into $(PEERS)"
	@echo "make soak          run the exhaustive tests, then the trust harnesses for MINUTES=$(MINUTES)"
	@echo "make reference     write docs/reference from the code"
	@echo "make pictures      take the pictures of the README (needs Chromium)"
	@echo "make screenshots   accept how the pages look, and save pictures of them in $(SHOTS)"
	@echo "make requirements  pin again after a change in pyproject.toml (ARGS=--upgrade for newer)"
	@echo "make clean         remove .venv and the caches"

# 130: ended with Ctrl-C, which is no error.
up: $(VENV)/installed-run
	@trap : INT; $(BIN)/agents-ledger up $(ARGS) || [ $$? -eq 130 ]

dev: $(VENV)/installed-dev

test: dev
	$(BIN)/pytest -n 2 --dist worksteal $(ARGS)

check: dev
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(BIN)/python scripts/sizes.py
	$(BIN)/python scripts/async_face.py --check

format: dev
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

async: dev
	$(BIN)/python scripts/async_face.py

bench: dev peers
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(ARGS)

peers: $(PEERS)/installed

$(PEERS)/installed: requirements/peers.txt | dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(PEERS)
	$(BIN)/uv pip install --quiet --python $(PEERS)/$(notdir $(BIN))/python$(EXE) --require-hashes -r $<
	@touch $@

soak: dev
	$(BIN)/pytest -n 2 --dist worksteal -m "exhaustive or hypothesis" --hypothesis-profile soak
	$(BIN)/python -m tests.trust.soak --minutes $(MINUTES) $(ARGS)

reference: dev
	$(BIN)/python -m scripts.reference

pictures: dev
	$(BIN)/python -m scripts.pictures

# Look at the pictures before you commit the thumbnails in tests/web/accepted.
screenshots: dev
	@mkdir -p $(SHOTS)
	AGENTS_LEDGER_SCREENSHOTS=$(SHOTS) $(BIN)/pytest -q tests/web/test_screenshots.py
	@echo "The pictures are in $(SHOTS)."

# The second file is held to the first, so that tests run on what users get.
requirements: dev
	$(COMPILE) --extra all --output-file requirements/run.txt
	$(COMPILE) --all-extras --group dev --constraint requirements/run.txt --output-file requirements/dev.txt
	$(BIN)/uv pip compile requirements/peers.in --universal --python-version 3.11 --generate-hashes \
	  --no-header --quiet --output-file requirements/peers.txt $(ARGS)

clean:
	rm -rf $(VENV) $(PEERS) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests scripts benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/installed-%: requirements/%.txt pyproject.toml
	@$(PYTHON) scripts/install.py $(VENV) $<
	@touch $@
