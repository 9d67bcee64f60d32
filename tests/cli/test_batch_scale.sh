#!/bin/sh
# Goal    many lines of mixed length under a fixed budget: each is answered, and
#         memory does not grow with their number.
# Method  LINES lines (`make check-long` has 10,000) and a quarter of them; peak
#         resident memory of both, from the reports.
. tests/tap.sh
LINES=${LINES:-800}
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 - "$D" "$LINES" << 'PY'
import json, random, sys
folder, lines = sys.argv[1], int(sys.argv[2])
r = random.Random(5)
with open(folder + "/all", "w") as f:
    for i in range(lines):
        n = r.randrange(200, 400) if i % 50 == 3 else r.randrange(1, 24)
        f.write(json.dumps({"id": "line %d" % i, "max_tokens":
                            r.randrange(1, 12), "prompt": [
                                r.randrange(500) for _ in range(n)]}) + "\n")
PY
head -n $((LINES / 4)) "$D/all" > "$D/quarter"
job() { # name
    "$S" batch "$D/model" -i "$D/$1" -o "$D/$1.out" -m 48M -c 512 --sequences 32 \
        --report "$D/$1.report" 2> "$D/err" || sed 's/^/# /' "$D/err"
}
peak() { sed -n 's/.*"peak_rss_bytes": \([0-9]*\).*/\1/p' "$D/$1.report"; }
job quarter
job all
[ "$(grep -c '"error":null' "$D/all.out")" -eq "$LINES" ] &&
    [ "$(sed 's/.*"custom_id":"\([^"]*\)".*/\1/' "$D/all.out" | sort -u |
        wc -l)" -eq "$LINES" ]
verdict $? "$LINES lines, an answer each"
if grep -q __asan_init "$S" || grep -q __tsan_init "$S"; then
    echo "ok $((n + 1)) - memory # SKIP a sanitizer takes memory of its own"
    echo "1..$((n + 1))"
    exit
fi
[ "$(peak all)" -le $((48 << 20)) ]
verdict $? "the budget holds: $(peak all) bytes"
[ "$(peak all)" -le $(($(peak quarter) + (1 << 20) + LINES * 100)) ]
verdict $? "memory is flat: $(peak quarter) bytes for a quarter of the lines"
echo "1..$n"
