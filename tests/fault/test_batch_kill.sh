#!/bin/sh
# Goal    kill -9 at any moment loses no finished answer, gives none twice, and
#         the same command ends with the answers of a job that nobody killed.
# Method  tests/fault/kill_batch.py: a job of lines of mixed length, killed
#         again and again after a random time, in order and as it comes. KILLS
#         is how often; `make check-long` has 200.
S=${BUILD:-build}/sluice
D=$(mktemp -d) || exit 1
trap 'rm -rf "$D"' EXIT
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/fault/kill_batch.py "$S" "$D" "${KILLS:-8}"
