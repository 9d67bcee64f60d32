#!/bin/sh
# Goal    kill -9 at any moment leaves the old or the new state, whole: the same
#         command ends with the text of a run that nobody killed, and reads no
#         more rows than were made since the last save. The same for a prefix
#         cache that several fill.
# Method  tests/fault/kill_state.py: a run that saves after every 3 ids, killed
#         again and again after a random time. KILLS is how often; `make
#         check-long` has 200.
S=${BUILD:-build}/sluice
D=$(mktemp -d) || exit 1
trap 'rm -rf "$D"' EXIT
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 >/dev/null || exit 1
python3 tests/fault/kill_state.py "$S" "$D" "${KILLS:-12}"
