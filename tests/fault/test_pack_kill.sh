#!/bin/sh
# Goal    kill -9 at any moment of a pack loses no finished file and leaves none
#         half done, and the same command ends with the files of one go.
# Method  tests/fault/kill_pack.py: a pack with one to four threads, killed again
#         and again after a random time. KILLS is how often; `make check-long`
#         has 100 and more.
S=${BUILD:-build}/sluice
D=$(mktemp -d) || exit 1
trap 'rm -rf "$D"' EXIT
$S synth "$D/model" --preset tiny --num-hidden-layers 6 --hidden-size 512 \
    --intermediate-size 4096 --full-attn-layers 3,6 || exit 1
python3 tests/fault/kill_pack.py "$S" "$D" "${KILLS:-8}"
