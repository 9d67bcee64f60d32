#!/bin/sh
# Goal    `sluice replay` counts what a cache would have done, and dhd keeps the
#         experts that come back.
# Method  random traces and the counts of traces.py, which shares nothing with
#         ours: hits a step of LRU, FIFO and MIN and the loads of LRU, from one
#         frame to all experts. dhd loads at most 9/10 of what LRU loads and no
#         less than MIN. The same counts on the recorded traces where they are;
#         they also hold traces.py to another program's. SEEDS="N N" replays.
. tests/tap.sh
RECORDED=../shared/data/traces
GOLDEN=$RECORDED/k3_trace_golden.json
counts() { # FILE
    frames=$(python3 -B tests/cli/traces.py frames "$1") &&
        "$S" replay "$1" --policy lru,fifo,min --frames "$frames" --json \
            > "$D/counts" 2> "$D/err" && [ ! -s "$D/err" ] &&
        python3 -B tests/cli/traces.py check "$1" "$D/counts"
}
for seed in ${SEEDS:-1 2 3}; do
    python3 -B tests/cli/traces.py make "$D/trace" "$seed" && counts "$D/trace"
    verdict $? "seed $seed: hits and loads"
    "$S" replay "$D/trace" --policy dhd,lru,min --frames 14,28,57,100 \
        --json > "$D/rates" 2> "$D/err" && python3 - "$D/rates" << 'PY'
import json, sys
loads = {(x["policy"], x["frames"]): x["loads"]
         for x in json.load(open(sys.argv[1]))}
for frames in 14, 28, 57, 100:
    dhd, lru, best = (loads[p, frames] for p in ("dhd", "lru", "min"))
    assert best < dhd <= lru * 0.9, (frames, dhd, lru, best)
PY
    verdict $? "seed $seed: dhd is between LRU and MIN"
done
if [ -r $GOLDEN ]; then
    for name in k3_trace k3_trace_excerpt kimi_linear_trace; do
        python3 -B tests/cli/traces.py golden $RECORDED/$name.bin $name \
            $GOLDEN
        verdict $? "$name: traces.py counts what another program counted"
        counts $RECORDED/$name.bin
        verdict $? "$name: hits and loads"
    done
fi # property/test_replay.c says when they are absent
echo "1..$n"
