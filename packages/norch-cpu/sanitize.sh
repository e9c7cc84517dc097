#!/usr/bin/env bash
# Builds norch-cpu to develop with, but with sanitizers, into a folder of its own and runs tests on it:
#     sanitize.sh address,undefined [pytest arguments]    the kernel and sample tests
#     sanitize.sh thread                                  the thread-stress test
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
sanitizers=$1
shift
site="$PWD/build/sanitize-${sanitizers%%,*}"

library() { "${CXX:-g++}" -print-file-name="$1"; }

export SKBUILD_BUILD_DIR="$site/cmake" NORCH_CPU_BUILD=native
"${HATCH_UV:-uv}" pip install -q --no-build-isolation --no-deps --reinstall --no-cache --target "$site/packages" \
  -C cmake.define.NORCH_CPU_SANITIZE="$sanitizers" ./packages/norch-cpu

export PYTHONPATH="$site/packages${PYTHONPATH:+:$PYTHONPATH}" NORCH_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
case $sanitizers in
  address*)
    tests=packages/norch-cpu/tests
    bindings=("$tests"/test_{backend,cpu_memory,fused,program}.py)
    sanitized() { # what Python allocates with, and arguments; Python itself frees little at its end: no leaks are looked for
      LD_PRELOAD="$(library libasan.so) $(library libubsan.so) $(library libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
        PYTHONMALLOC="$1" python -m pytest -q -n "${NORCH_TEST_PROCESSES:-2}" --dist worksteal "${@:2}"
    }
    # Python's small objects are watched too where bindings are tested, which takes twice the time. All that kernels read and
    # write, norch's memory and NumPy's, comes from malloc in any case.
    sanitized malloc "${bindings[@]}" -k "not a_bad_variable" "$@" || [ $? = 5 ] # 5: none of them was asked for
    sanitized default "$tests" packages/norch-core/tests/test_samples.py "${bindings[@]/#/--ignore=}" \
      --device cpu -k "not test_samples or values or layouts or inplace" "$@"
    ;;
  thread)
    LD_PRELOAD="$(library libtsan.so)" TSAN_OPTIONS=halt_on_error=1 \
      python packages/norch-cpu/tests/stress.py "$@"
    ;;
esac
