#!/bin/sh
# Goal    A response that is kept is what was sent, for the key that asked and
#         for nobody else, over kill -9, until it expires or is deleted; one
#         that goes on from it has the bits of one that is told everything.
# Method  a small random checkpoint, a client of sockets: cases_responses.py.
. tests/tap.sh
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/serve/cases_responses.py "$S" "$D"
