# `make` lists what there is. Every target installs what it misses first (apt-get, on Debian 12).
.PHONY: help deps build test run bench fuzz fuzz-deps tsan clean
.DEFAULT_GOAL := help

help:
	@echo "make run             build, then train a small GPT on real text for about two minutes"
	@echo "make run TEXT=PATH   the same on a text file or a folder of yours"
	@echo "make test            build and run all tests"
	@echo "make build           build the program: build/release/trireme"
	@echo "make bench           measure beside PyTorch, JAX, MindSpore, tinygrad and ggml, which it installs into build/peers; some hours (bench/run --help)"
	@echo "make fuzz            give each parser 100000 inputs, by clang's libFuzzer; RUNS=N for N, PARSERS=\"config graph\" for some"
	@echo "make fuzz-deps       install clang for it"
	@echo "make tsan            the thread sanitizer over what ranks and threads share, pipelines and 200 random cases; for the night"
	@echo "make deps            install the packages the build needs"
	@echo "make clean           remove build/release"

deps:
	@tools/install_deps

build/release/build.ninja: | deps
	cmake --preset release

build: build/release/build.ninja deps
	cmake --build --preset release --target trireme_cli

test: build/release/build.ninja deps
	@tools/install_deps clang-format-14 coinor-cbc
	cmake --build --preset release
	@tools/run_tests build/release --output-on-failure -j2

run: build
	@tools/run_main_job $(if $(TEXT),"$(TEXT)")

bench: build
	@tools/install_deps fio libtcmalloc-minimal4 libjemalloc2
	bench/run

fuzz: deps
	@command -v clang++-16 >/dev/null || { echo "make fuzz: clang++-16 is missing; make fuzz-deps installs it" >&2; exit 2; }
	cmake --preset fuzz
	cmake --build --preset fuzz
	@tests/fuzz/run $(PARSERS)

fuzz-deps:
	@tools/install_deps clang-16 libclang-rt-16-dev

# UCX's hooks do not survive the sanitizer; jobs of several processes are left to the other builds.
tsan: deps
	cmake --preset tsan
	cmake --build --preset tsan --target comm_test exec_test multi_test equivalence_test
	@tests/tsan build/tsan

clean:
	rm -rf build/release
