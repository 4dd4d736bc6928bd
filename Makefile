# The front door.  `make help` lists the targets; CMakeLists.txt is the build.
BUILD  ?= build
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
PY      = .venv/bin/python3
DEMO   ?= fit examples/bert.py size=small batch=8 seq=256 --budget 120MiB --steps 40
BENCH  ?= bench/run.py
PYTEST ?=
FUZZ_SECONDS ?= 60

CONFIGURE = cmake -G Ninja -DCMAKE_MAKE_PROGRAM="$$(command -v ninja)"
COMPILE   = cmake --build
# cmake's own chatter only when it has something to say
define build
	@$(CONFIGURE) -S . -B $(1) $(2) >$(1).log 2>&1 || { cat $(1).log; rm -f $(1).log; exit 1; }; rm -f $(1).log
	@$(COMPILE) $(1) -j $(JOBS) -- --quiet
endef

.PHONY: all help setup setup-apt build demo check check-gpu asan tsan fuzz golden bench bench-gpu lint format docs wheel install clean

all: build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "  %-10s %s\n", $$1, $$2 }'

setup: ## what the build and the tests need: Debian packages and a private .venv
	@scripts/setup.sh

setup-apt:
	@scripts/setup.sh apt

build: setup-apt ## the library and the command, in build/
	$(call build,$(BUILD),-DTN_WERROR=$(if $(WERROR),ON,OFF))

demo: setup build ## a training run made to fit its budget, in about a minute
	@$(BUILD)/tonnage $(DEMO)

check: setup build ## every test that needs no GPU: unit, command, Python
	@$(PY) scripts/check.py --build $(BUILD) unit cli python -- $(PYTEST)

check-gpu: setup build ## the tests that need a GPU; skipped with a reason where there is none
	@$(PY) scripts/check.py --build $(BUILD) gpu -- $(PYTEST)

asan: setup build ## unit and command tests under AddressSanitizer and UBSan
	$(call build,$(BUILD)-asan,-DCMAKE_BUILD_TYPE=Debug -DTN_SANITIZE=address$(comma)undefined)
	@TONNAGE_LIB=$(abspath $(BUILD))/libtonnage.so $(PY) scripts/check.py --build $(BUILD)-asan unit cli

tsan: setup ## unit tests under ThreadSanitizer
	$(call build,$(BUILD)-tsan,-DCMAKE_BUILD_TYPE=Debug -DTN_SANITIZE=thread)
	@$(PY) scripts/check.py --build $(BUILD)-tsan unit

fuzz: setup-apt ## libFuzzer on every reader for FUZZ_SECONDS each (needs clang)
	@BUILD=$(BUILD)-fuzz SECONDS_EACH=$(FUZZ_SECONDS) JOBS=$(JOBS) scripts/fuzz.sh

golden: setup build ## record anew what the tests compare with: command output, manual pages, exported symbols
	@$(PY) scripts/golden.py --build $(BUILD)

bench: setup build ## benchmarks that need no GPU
	@TONNAGE_LIB=$(abspath $(BUILD))/libtonnage.so $(PY) $(BENCH)

bench-gpu: setup build ## predicted against measured, and time against memory, on the GPU
	@TONNAGE_LIB=$(abspath $(BUILD))/libtonnage.so $(PY) $(BENCH) --gpu

lint: setup build ## include arrows, headers alone, exported symbols, Python and C checkers where installed
	@$(PY) scripts/lint.py --build $(BUILD)

format: ## clang-format and ruff format, where installed
	@if command -v clang-format >/dev/null; then git ls-files '*.c' '*.h' '*.cc' | xargs clang-format -i; else echo "format: no clang-format here"; fi
	@if [ -x .venv/bin/ruff ]; then .venv/bin/ruff format -q python tests scripts bench examples; else echo "format: no ruff here; run make setup"; fi

docs: build ## manual pages, from the option table
	@$(BUILD)/tonnage version >/dev/null && python3 scripts/golden.py --build $(BUILD) man

wheel: setup ## a wheel in dist/
	@$(PY) -m pip wheel -q --no-deps --no-build-isolation -w dist . && ls dist/*.whl

install: build ## into PREFIX (/usr/local)
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove the builds; .venv stays
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz dist

comma := ,
