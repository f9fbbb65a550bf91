# Everything a user or CI does: make demo, make test, make test-slow.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: install demo test test-slow golden lint clean

# The stamp is newer than what it was made from, so a second call installs nothing.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Interplay needs Python 3.11 or later; set PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@command -v iverilog >/dev/null || { test "$$(id -u)" = 0 && apt-get install -y -q iverilog >/dev/null 2>&1; } || \
		echo "Icarus Verilog is missing: the tests of the hardware task will be skipped (apt install iverilog)."
	touch $@

install: $(VENV)/installed

demo: install
	$(BIN)/interplay train recipes/tictactoe/demo.toml

lint: install
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -m "not slow"

test-slow: install
	$(BIN)/python -m pytest -m slow

# The same short trainings with an older commit and with this tree must agree bit for bit (see tests/golden).
golden: install
	$(BIN)/python tests/golden

clean:
	rm -rf $(VENV) .golden build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
