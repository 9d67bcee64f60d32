#!/bin/sh
# Goal    kill -9 at any moment of a spread loses no finished file and no shard,
#         leaves none half done, and the same command ends with the files of one
#         go; with --move too, and on the way back.
# Method  tests/fault/kill_spread.py: a spread with one to four threads, killed
#         again and again after a random time; after each, every shard is there
#         or whole in its parts. KILLS is how often; `make check-long` has 100
#         and more.
S=${BUILD:-build}/sluice
D=$(mktemp -d) || exit 1
trap 'rm -rf "$D"' EXIT
$S synth "$D/model" --preset tiny --num-hidden-layers 4 --num-experts 8 \
    --full-attn-layers 3 || exit 1
python3 tests/fault/kill_spread.py "$S" "$D" "${KILLS:-5}"
