#!/bin/sh
# Goal    sluice batch answers every line once, with what sluice run gives for
#         it alone; a bad line costs nobody else; order, pipes, resuming, signals
#         and exit codes are as the manual says.
# Method  a small random checkpoint; the cases in tests/cli/batch_cases.py.
S=${BUILD:-build}/sluice
D=$(mktemp -d) || exit 1
trap 'rm -rf "$D"' EXIT
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/cli/batch_cases.py "$S" "$D"
