#!/usr/bin/env bash
# test.sh PYTHON [quick]: the kernel tests, the transformers classes' golden tokens, and answers compared bit for bit
# with this machine's, on the wheel in build/aarch64/site under qemu: as a cortex-a76 (SDOT) and as a cortex-a72
# (without), side by side. PYTHON: the environment with this machine's MindNano. quick: every operation at its small
# shapes, fewer answers.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 quick=${2:-}
log=build/aarch64
golden="test_greedy_tokens or (test_logits and not generic)"
# test_oversubscribed starts processes, which only qemu itself can; generic is plain C++ and runs on x86; the rest is
# about the benchmark, not the kernels.
kernels="not test_oversubscribed and not generic and not test_timing and not test_json"
tests=(tests/kernels tests/engine/test_cores.py)
limit=2400  # seconds a step may take before it counts as hanging
if [ "$quick" = quick ]; then
  tests=(tests/kernels/test_operations.py tests/kernels/test_simd.py tests/engine/test_cores.py)
  golden="test_greedy_tokens and (bailing-latent or bailing-odd-expanded or kimi-latent) or \
    test_logits and not generic and (bailing-16-heads or kimi-odd)"
  limit=700
fi

run() { timeout --foreground -k 10 "$limit" cross/python "$cpu" "$@"; }
py_test() { run -m pytest -p no:cacheprovider --durations=8 "$@"; }

as() {  # CPU, instruction set, the pytest expression that leaves only its tests
  local cpu=$1
  run -c "
from mindnano import kernels
assert kernels.isa() == '$2', kernels.isa()"
  run -m cross.answers "$2" $quick > "$log/answers-$2.txt"
  py_test tests/model/test_against_transformers.py -k "($golden) and $3"
  py_test "${tests[@]}" -k "$kernels and $3"
}

if ! "$python" -c "from mindnano import kernels; kernels.set_isa('avx2')"; then
  echo "arm-test: NEON's answers are AVX2's; this machine has no AVX2 to compare with" >&2
  exit 1
fi
set -m  # each job in a process group of its own, so that all of it ends with this script
trap 'for job in $(jobs -p); do kill -- "-$job" 2> /dev/null || true; done' EXIT
trap 'exit 130' INT TERM
rm -f "$log"/answers-*.txt
as cortex-a76 neon_dot "(neon_dot or not neon)" > "$log/cortex-a76.txt" 2>&1 & first=$!
as cortex-a72 neon "not neon_dot" > "$log/cortex-a72.txt" 2>&1 & second=$!
timeout --foreground -k 10 "$limit" "$python" -m cross.answers avx2 $quick > "$log/answers-avx2.txt" & here=$!
wait $here
failed=0
wait $first || failed=1
wait $second || failed=1
for cpu in cortex-a76 cortex-a72; do
  echo "== $cpu"
  cat "$log/$cpu.txt"
done
[ $failed = 0 ] || { echo "arm-test: failed, or stopped after $limit s a step" >&2; exit 1; }
for isa in neon neon_dot; do diff "$log/answers-avx2.txt" "$log/answers-$isa.txt"; done
echo "neon, neon_dot and avx2 give the same bits: $(wc -l < "$log/answers-avx2.txt") operations and models"
"$python" cross/instructions.py --check || [ "$quick" = quick ]  # CI is about answers: there it is only said
