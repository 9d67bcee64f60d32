#!/bin/sh
# Goal    lines that gzip or zstd has compressed are answered as the lines are,
#         from files and pipes, also when the job was killed; damage is a
#         sentence before there is an output.
# Method  tests/batch/batch_packed.py, on a small random checkpoint.
. tests/tap.sh
$S synth "$D/m" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/batch/batch_packed.py "$S" "$D"
