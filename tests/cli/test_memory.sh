#!/bin/sh
# Goal    a budget holds, and every byte of a run is accounted for: peak memory,
#         trunk and experts read, and what the reader says it read.
# Method  models at budgets from the floor up. A pass reads exactly what the
#         plan streams, an expert load exactly one expert; the resident trunk
#         is read once; the parts add up to the payload of the reader. Without
#         a cache a token reads what `sluice plan` says. The ids are the same
#         at every budget. With arguments, presets: tiny small bench k3; bench
#         takes 9 GB of the drive, k3 is sparse and takes minutes.
. tests/tap.sh
cat > "$D/check.py" <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
plan, io, latency = r['plan'], r['io'], r['latency']
expert, sanitized = int(sys.argv[2]), sys.argv[3]
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
prefetch = prefill['expert_prefetch_bytes'] + decode['expert_prefetch_bytes']
same('experts', demand + prefetch, experts['loads'] * expert)
same('requests', experts['requests'], experts['hits'] + experts['loads'])
same('resident', io['resident_read_bytes'], plan['resident_payload_bytes'])
same('trunk reads', latency['trunk']['payload_bytes'],
     plan['resident_payload_bytes'] +
     passes * plan['streamed_payload_bytes'])
same('decode', decode['read_bytes'],
     decode['trunk_bytes'] + decode['embed_bytes'] +
     decode['expert_demand_bytes'] + decode['expert_prefetch_bytes'] +
     decode['wasted_bytes'])
same('reader', io['payload_bytes'],
     sum(c['payload_bytes'] for c in latency.values()))
if r['peak_rss_bytes'] > plan['budget_bytes'] and not sanitized:
    bad.append('peak %d' % r['peak_rss_bytes'])
if len(sys.argv) > 4: # the plan of a run without a cache
    plan_json = json.load(open(sys.argv[4]))
    same('a token', decode['read_bytes'],
         decode['passes'] * plan_json['read_bytes_per_token'])
print('# %.1f MB of %.1f' % (r['peak_rss_bytes'] / 1e6,
                             plan['budget_bytes'] / 1e6))
if plan['total_bytes'] > plan['budget_bytes']:
    bad.append('plan above budget')
for line in bad:
    print(line, file=sys.stderr)
sys.exit(bool(bad))
END
sanitized=$(grep -o 'fsanitize=[a-z]*' "${BUILD:-build}/flags")

FEWER='--num-hidden-layers 5 --num-experts 24 --vocab-size 2048'
# budgets PRESET NEW BYTES...: the model at its floor and so much more
budgets() {
    preset=$1 new=$2 evicted=0
    shift 2
    case $preset in
    small) shape=$FEWER ;;
    k3) shape=--sparse ;;
    *) shape= ;;
    esac
    "$S" synth "$D/m" --preset "$preset" $shape --seed 3 > /dev/null 2>&1 ||
        exit 1
    floor=$("$S" run "$D/m" --ids 1 -n 1 -m 1M 2>&1 |
            sed -n 's/.*floor of \([0-9]*\) bytes.*/\1/p')
    [ -n "$floor" ]
    verdict $? "$preset: a budget below the floor is refused, the floor told"
    "$S" run "$D/m" --ids 1 -n 1 -m $((floor - 1)) > /dev/null 2>&1
    [ $? -eq 1 ]
    verdict $? "$preset: one byte below the floor is refused"
    for more; do
        memory=$((floor + more))
        for policy in dhd none; do
            rm -f "$D/r.json"
            "$S" run "$D/m" --ids 5,6,7,8,9 -n "$new" --ignore-eos \
                --prefetch none --policy $policy -m $memory -t 2 \
                --report "$D/r.json" > "$D/ids" 2> "$D/err" || cat "$D/err"
            # Bytes of one expert, from the model itself.
            [ -n "$expert" ] || expert=$(python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
print(sum(r[p]["expert_demand_bytes"] for p in ("prefill", "decode")) //
      r["experts"]["loads"])' \
                "$D/r.json")
            "$S" plan "$D/m" -m $memory -t 2 --rows 5 --json > "$D/plan.json"
            [ -s "$D/first" ] || cp "$D/ids" "$D/first"
            python3 "$D/check.py" "$D/r.json" "$expert" "$sanitized" \
                $([ $policy = none ] && echo "$D/plan.json") &&
                cmp -s "$D/ids" "$D/first"
            verdict $? "$preset, $policy: the floor and $more bytes"
            grep -q '"evictions": [1-9]' "$D/r.json" && evicted=1
        done
    done
    [ $evicted -eq 1 ]
    verdict $? "$preset: some budget was too small for what the cache had"
    rm -rf "$D/m" "$D/first"
    expert=
}
for preset in ${*:-tiny small}; do
    case $preset in
    tiny) budgets tiny 6 0 300000 3000000 6000000 7000000 400000000 ;;
    small) budgets small 4 0 20000000 60000000 120000000 800000000 ;;
    bench) budgets bench 3 0 500000000 2000000000 ;;
    k3) budgets k3 2 0 700000000 6500000000 ;;
    esac
done
[ $# -eq 0 ] || exit 0

# An end id: what was read ahead of it, and prefetches that no router ran for, were
# read, so the parts are all that was read.
cat > "$D/wasted.py" << 'END'
import json, sys
r = json.load(open(sys.argv[1]))
read = r['io']['resident_read_bytes']
for part in r['prefill'], r['decode']:
    read += part['read_bytes']
    sum_ = sum(part[n] for n in ('trunk_bytes', 'embed_bytes', 'wasted_bytes',
                                 'expert_demand_bytes', 'expert_prefetch_bytes'))
    if sum_ != part['read_bytes']:
        sys.exit('# parts: %d of %d' % (sum_, part['read_bytes']))
if read != r['io']['payload_bytes']:
    sys.exit('# read: %d of %d' % (read, r['io']['payload_bytes']))
if len(r['generated_ids']) != int(sys.argv[2]):
    sys.exit('# not ended by the id')
last = r['decode' if int(sys.argv[2]) else 'prefill']
if r['plan']['ring_bytes'] and not last['wasted_bytes']:
    sys.exit('# nothing was wasted')
END
"$S" synth "$D/m" --preset small $FEWER --seed 3 > /dev/null 2>&1 || exit 1
ids=$("$S" run "$D/m" --ids 5,6,7,8,9 -n 4 --ignore-eos 2> /dev/null)
for kept in 0 1 3; do
    end=$(echo "$ids" | cut -d, -f$((kept + 1)))
    for place in eos_token_id text_config.eos_token_id; do
        python3 tests/cli/ckpt_edit.py "$D/m" config $place "$end"
    done
    for how in '-m 100M --prefetch none' '-m 100M --prefetch gate' \
        '-m 240M --prefetch ema --policy none'; do
        rm -f "$D/r.json"
        "$S" run "$D/m" --ids 5,6,7,8,9 -n 40 $how --report "$D/r.json" \
            > /dev/null 2> "$D/err" || cat "$D/err"
        python3 "$D/wasted.py" "$D/r.json" $kept
        verdict $? "ended after $kept ids, $how: all that was read is told"
    done
done
rm -rf "$D/m"

"$S" synth "$D/m" --preset tiny --seed 3 > /dev/null 2>&1 || exit 1
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
