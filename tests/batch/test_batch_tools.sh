#!/bin/sh
# Goal    calls of strict tools, and calls that are required, parse and are
#         valid; beside a form, in a pipe, and refused by keyword.
# Method  tests/batch/batch_tools.py, on a small random checkpoint with a lean
#         towards control ids; python3-jsonschema validates, where it is.
#         TOOLS=N asks N times as often (make check-long).
. tests/tap.sh
python=/usr/bin/python3
[ -x $python ] || python=python3
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
$python tests/batch/batch_tools.py "$S" "$D" "${TOOLS:-1}"
