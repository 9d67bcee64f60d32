#!/bin/sh
# Goal    a budget holds, and every byte of a run is accounted for: peak memory,
#         trunk and experts read, and what the reader says it read.
# Method  a tiny model at budgets from the floor up. A pass reads exactly what
#         the plan streams, an expert load exactly one expert; the resident
#         trunk is read once; the parts add up to the payload of the reader.
#         The ids are the same at every budget.
S=${BUILD:-build}/sluice
D=$(mktemp -d) || exit 1
trap 'rm -rf "$D"' EXIT
n=0
verdict() { # status name
    n=$((n + 1))
    [ "$1" -eq 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}
"$S" synth "$D/m" --preset tiny --seed 3 > /dev/null 2>&1 || exit 1
cat > "$D/check.py" <<'END'
import json, os, sys
r = json.load(open(sys.argv[1]))
plan, io, latency = r['plan'], r['io'], r['latency']
expert = int(sys.argv[2])
bad = []
def same(what, a, b):
    if a != b:
        bad.append('%s: %d is not %d' % (what, a, b))
passes = 0
for part in r['prefill'], r['decode']:
    passes += part['passes']
    same('trunk', part['trunk_bytes'],
         part['passes'] * plan['streamed_payload_bytes'])
prefill, decode, experts = r['prefill'], r['decode'], r['experts']
demand = prefill['expert_demand_bytes'] + decode['expert_demand_bytes']
guess = prefill['expert_guess_bytes'] + decode['expert_guess_bytes']
same('experts', demand + guess, experts['loads'] * expert)
same('requests', experts['requests'], experts['hits'] + experts['loads'])
same('resident', io['resident_read_bytes'], plan['resident_payload_bytes'])
same('trunk reads', latency['trunk']['payload_bytes'],
     plan['resident_payload_bytes'] +
     passes * plan['streamed_payload_bytes'])
same('decode', decode['read_bytes'],
     decode['trunk_bytes'] + decode['embed_bytes'] +
     decode['expert_demand_bytes'] + decode['expert_guess_bytes'] +
     decode['wasted_bytes'])
same('reader', io['payload_bytes'],
     sum(c['payload_bytes'] for c in latency.values()))
# A sanitizer takes memory of its own.
flags = os.path.join(os.environ.get('BUILD', 'build'), 'flags')
sanitized = 'fsanitize' in open(flags).read()
if not sanitized and r['peak_rss_bytes'] > plan['budget_bytes']:
    bad.append('peak %d' % r['peak_rss_bytes'])
if plan['total_bytes'] > plan['budget_bytes']:
    bad.append('plan above budget')
for line in bad:
    print(line, file=sys.stderr)
sys.exit(bool(bad))
END
floor=$("$S" run "$D/m" --ids 1 -n 1 -m 1M 2>&1 |
        sed -n 's/.*floor of \([0-9]*\) bytes.*/\1/p')
[ -n "$floor" ]
verdict $? 'a budget below the floor is refused, and the floor is told'
"$S" run "$D/m" --ids 1 -n 1 -m $((floor - 1)) > /dev/null 2>&1
[ $? -eq 1 ]
verdict $? 'one byte below the floor is refused'
# Bytes of one expert of this preset, from the model itself.
expert=$("$S" run "$D/m" --ids 1 -n 1 -m 1G --prefetch none \
         --report "$D/one.json" 2> /dev/null > /dev/null &&
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
print(r["prefill"]["expert_demand_bytes"] // r["experts"]["loads"])' \
        "$D/one.json")
for more in 0 300000 1000000 3000000 400000000; do
    "$S" run "$D/m" --ids 5,6,7,8,9 -n 6 --ignore-eos --prefetch none \
        -m $((floor + more)) --report "$D/r.json" > "$D/ids.$more" 2> "$D/err" &&
        python3 "$D/check.py" "$D/r.json" "$expert" &&
        cmp -s "$D/ids.0" "$D/ids.$more"
    s=$?
    [ $s -eq 0 ] || cat "$D/err"
    verdict $s "the floor and $more bytes: memory, bytes and ids are right"
done
"$S" run "$D/m" --ids 1,2 -n 2 -m 1G > /dev/full 2> "$D/err"
[ $? -eq 1 ] && grep -q 'stdout could not be written' "$D/err"
verdict $? 'ids that could not be written are a failure'
for command in "plan $D/m --json" "plan $D/m" "doctor --json" \
    "verify $D/m --json" "run --help"; do
    "$S" $command > /dev/full 2> "$D/err"
    [ $? -eq 1 ] && grep -q 'stdout could not be written' "$D/err"
    verdict $? "${command%% *} that could not be written is a failure"
done
echo "1..$n"
