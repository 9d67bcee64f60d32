#!/bin/sh
# Goal    With an engine at a second a token no client is left without a byte,
#         none that left costs anything, none that asks again costs it twice.
# Method  a simulated drive that is slow, short intervals: cases_patience.py.
. tests/tap.sh
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/serve/cases_patience.py "$S" "$D"
