# `make demo` and `make test` are all that a fresh machine needs: each sets everything up first.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test check bench conformance format docs picture lock clean

BIN := .venv/bin

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

setup: ## make .venv from the locked files and install what the tests need
	@bash script/setup.sh

demo: setup ## run the six-step check on the samples and print its PASS table
	@$(BIN)/dabom demo --once

test: setup ## run the tests
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

check: setup ## format, lint, types, imports, limits
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_house.py

bench: setup ## compare the gateway with its peers and print the table
	@$(BIN)/python -m bench.gateway.run

conformance: setup ## run the upstream tests against real vLLM and llama.cpp
	@bash script/conformance/run.sh

format: setup ## rewrite the sources in the house format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: setup ## write the generated pages and the transcripts of the READMEs anew
	$(BIN)/python script/gen_docs.py
	$(BIN)/python script/transcripts.py

picture: setup ## draw the picture of the READMEs anew
	$(BIN)/python script/picture.py

lock: ## choose new versions and write requirements/*.lock
	@bash script/lock.sh

clean: ## remove what the other targets made, except bench peers and vLLM
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
	find src tests bench script experiments -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
