#!/bin/sh
# Goal    a batch file from any program: what asks for the same gets the same,
#         what asks for something else is refused by the field's name.
# Method  tests/cli/batch_dialects.py: one request in the words of many clients,
#         on a small random checkpoint.
. tests/tap.sh
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/cli/batch_dialects.py "$S" "$D"
