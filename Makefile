# `make demo` and `make test` need python3 (3.11 or newer) and make, and set up all the rest.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
CHECKED := workshop_gpu labextension/build.py $(wildcard tools benchmarks scripts)
PANEL := $(wildcard labextension/*.json labextension/build.py labextension/yarn.lock \
  labextension/src/*.ts* labextension/src/*/*.ts* labextension/style/* labextension/schema/*)
DEMO := $(if $(CHECK),--check) $(if $(DEVICE),--device $(DEVICE))

.PHONY: demo test lint types docs unit chromium clean help

help:
	@echo "make demo           start JupyterLab with the shipped models (DEVICE=cpu:2GB to choose)"
	@echo "make demo CHECK=1   run the first notebook once, print the path of its picture"
	@echo "make test           everything: formatting, types, documentation, tests"
	@echo "make lint | types | docs | unit    the parts of make test"

demo: $(VENV)/.installed-demo
	@$(BIN)/python scripts/demo.py $(DEMO)

# What only reads is done two at a time, longest first; what each of them says stays together.
test: $(VENV)/.installed-all
	@$(MAKE) --no-print-directory -j 2 --output-sync=target types lint docs
	@$(MAKE) --no-print-directory unit

lint: $(VENV)/.installed-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python labextension/build.py lint

types: $(VENV)/.installed-all
	$(BIN)/mypy $(CHECKED)

docs: $(VENV)/.installed-all
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "The documentation: docs/_build/html/index.html"

unit: $(VENV)/.installed-all chromium
	$(BIN)/python labextension/build.py test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

chromium:
	@sh scripts/need_chromium.sh

# A stamp per set of packages: a second run installs nothing.

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed (make PYTHON=python3.12 …)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "python3 cannot make a virtual environment (Debian: apt install python3-venv)"; \
	       exit 1; }
	@touch $@

$(VENV)/.installed-demo: $(VENV)/.made pyproject.toml constraints.txt $(PANEL)
	@echo "Installing Workshop GPU into $(VENV) (torch is large: this may take minutes) …"
	@$(PIP) -e ".[gpu,lab]"
	@touch $@

$(VENV)/.installed-all: $(VENV)/.installed-demo
	@echo "Installing what the tests need …"
	@$(PIP) -e ".[gpu,lab,test,docs]"
	@$(PIP) $$($(BIN)/python labextension/build.py requirements)
	@touch $@

clean:
	rm -rf build dist labextension/dist labextension/lib labextension/.made-of docs/_build demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
