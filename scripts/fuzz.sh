#!/bin/sh
# fuzz.sh -- every tests/fuzz/fuzz_*.c under libFuzzer, starting from its corpus.  Findings are left in $BUILD/findings.
set -eu
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build-fuzz}
SECONDS_EACH=${SECONDS_EACH:-60}
if ! command -v clang >/dev/null; then
  echo "fuzz: libFuzzer comes with clang, which is not here; make check and make asan replay the corpora"
  exit 2
fi
CC=clang CXX=clang++ cmake -G Ninja -S . -B "$BUILD" -DCMAKE_BUILD_TYPE=Debug -DTN_FUZZ=ON \
  -DTN_SANITIZE=address,undefined >/dev/null
cmake --build "$BUILD" -j "${JOBS:-2}"
mkdir -p "$BUILD/findings"
for source in tests/fuzz/fuzz_*.c; do
  name=$(basename "$source" .c)
  corpus=tests/fuzz/corpus/${name#fuzz_}
  mkdir -p "$BUILD/corpus/$name" # what libFuzzer discovers stays out of the repository
  echo "fuzz: $name for $SECONDS_EACH s"
  "$BUILD/$name" -max_total_time="$SECONDS_EACH" -artifact_prefix="$BUILD/findings/$name-" -print_final_stats=1 \
    "$BUILD/corpus/$name" "$corpus" 2>"$BUILD/$name.log" || { tail -40 "$BUILD/$name.log"; exit 1; }
  grep -E "stat::number_of_executed_units|DONE" "$BUILD/$name.log" || true
done
