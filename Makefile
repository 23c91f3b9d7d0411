# `make` lists what there is. Every target installs what it misses first (apt-get, on Debian 12).
.PHONY: help deps build test run bench clean
.DEFAULT_GOAL := help

help:
	@echo "make run             build, then train a small GPT on real text for about two minutes"
	@echo "make run TEXT=PATH   the same on a text file or a folder of yours"
	@echo "make test            build and run all tests"
	@echo "make build           build the program: build/release/trireme"
	@echo "make bench           measure"
	@echo "make deps            install the packages the build needs"
	@echo "make clean           remove build/release"

deps:
	@tools/install_deps

build/release/build.ninja: | deps
	cmake --preset release

build: build/release/build.ninja deps
	cmake --build --preset release --target trireme_cli

test: build/release/build.ninja deps
	cmake --build --preset release
	ctest --test-dir build/release --output-on-failure -j2

run: build
	@tools/run_main_job $(if $(TEXT),"$(TEXT)")

bench: build
	bench/run

clean:
	rm -rf build/release
