#!/bin/sh
# Goal    No prompt is read twice by the server: not when many requests begin
#         alike, not for the next turn of a conversation, not after a restart,
#         not when a request gives way to another; and bits stay.
# Method  a small random checkpoint; rows are counted in /metrics, answers are
#         compared with those that came alone, without a cache:
#         cases_share.py.
. tests/tap.sh
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/serve/cases_share.py "$S" "$D"
