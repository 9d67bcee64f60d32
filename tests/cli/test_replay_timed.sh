#!/bin/sh
# Goal    replay with a clock reads what the engine reads, byte for byte, and
#         its numbers agree with each other.
# Method  runs on simulated drives over models, budgets, drives and rows, each
#         traced and replayed with the plan that the trace carries. Only bytes
#         and counts are compared with the engine: time is the bench's.
. tests/tap.sh
"$S" synth "$D/tiny" --preset tiny > "$D/out" 2>&1 || exit 1
"$S" synth "$D/small" --preset small > "$D/out" 2>&1 || exit 1

cat > "$D/same.py" << 'PY'
import json, sys
r = json.load(open(sys.argv[1]))
x = json.load(open(sys.argv[2]))[0]
d, p, e = r["decode"], r["prefill"], r["experts"]
for name in ("trunk_bytes", "embed_bytes", "expert_demand_bytes",
             "expert_prefetch_bytes", "wasted_bytes", "tokens", "passes"):
    if x[name] != d[name]:
        sys.exit(f"# decode {name}: replay {x[name]}, engine {d[name]}")
for name in "requests", "hits", "loads":
    if x[name] != e[name]:
        sys.exit(f"# {name}: replay {x[name]}, engine {e[name]}")
if x["frames"] != r["plan"]["expert_frames"]:
    sys.exit("# frames")
if x["prefill_demand_bytes"] != p["expert_demand_bytes"]:
    sys.exit("# prefill bytes")
if abs(x["read_bytes_per_token"] - d["read_bytes_per_token"]) > 1:
    sys.exit("# bytes a token")
parts = x["compute_s"] + x["wait_trunk_s"] + x["wait_expert_s"]
if abs(parts - x["seconds"]) > 1e-6 * x["seconds"]:
    sys.exit(f"# {parts} s of parts, {x['seconds']} s")
if x["seconds"] < x["floor_s"] * (1 - 1e-9) - .05:
    sys.exit(f"# faster than the floor: {x['seconds']}, {x['floor_s']}")
PY
same() { # model ids, then options of run; devices in $DEV
    model=$1 ids=$2
    shift 2
    "$S" run "$D/$model" --ids $ids -n 3 --ignore-eos --prefetch none $DEV \
        --report "$D/r" --trace "$D/t" "$@" > "$D/out" 2> "$D/err" &&
        "$S" replay "$D/t" $DEV --compute "$D/r" --json \
            --policy $(python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["policy"])' "$D/r") > "$D/x" 2> "$D/err" &&
        python3 "$D/same.py" "$D/r" "$D/x"
    s=$?
    [ $s -eq 0 ] || sed 's/^/# /' "$D/err"
    verdict $s "bytes of the engine: $model $DEV $*"
}
IDS=5,9,2,44,17,3,8,90,21,6,7
DEV='--simulate-drive 0.2,50'
same tiny $IDS -m 34M
same tiny $IDS -m 36M --rows 4
same tiny $IDS -m 37M --policy lru
same tiny $IDS -m 60M --policy ema --rows 1
DEV='--simulate-drive 0.05,100 --simulate-drive 0.1,20'
same tiny $IDS -m 34M --rows 3
same tiny $IDS -m 37M --policy s3fifo
DEV='--simulate-drive 1'
same small 5,9 -m 100M
same small 5,9 -m 380M

# A faster drive is not slower, more memory does not read more.
"$S" replay "$D/t" --simulate-drive 0.1 --compute 0.2 --memory 100M,150M,380M \
    --policy dhd --json > "$D/slow" 2> "$D/err" &&
    "$S" replay "$D/t" --simulate-drive 1 --compute 0.2 \
        --memory 100M,150M,380M --policy dhd --json > "$D/fast" 2>> "$D/err" &&
    python3 -c 'import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert len(a) == len(b) == 3
for x, y in zip(a, b):
    assert y["seconds_per_token"] <= x["seconds_per_token"], (x, y)
    assert x["read_bytes_per_token"] == y["read_bytes_per_token"]
for l in a, b:
    for x, y in zip(l, l[1:]):
        assert y["read_bytes_per_token"] <= x["read_bytes_per_token"]
        assert abs(x["compute_s"] / x["tokens"] - .2) < 1e-3, x' \
        "$D/slow" "$D/fast"
verdict $? 'drives and budgets in the right order'

"$S" replay "$D/t" --simulate-drive 0.3 --compute 0.05 --policy dhd \
    --prefetch none,perfect,gate,auto,path --json > "$D/a" 2> "$D/err" &&
    "$S" replay "$D/t" --simulate-drive 0.3 --compute 0.05 --policy dhd \
        --prefetch none,perfect,gate,auto,path --json > "$D/b" &&
    cmp -s "$D/a" "$D/b" && python3 -c 'import json, sys
none, perfect, gate, auto, path = json.load(open(sys.argv[1]))
assert perfect["prefetched"] > 0 and gate["prefetched"] > 0
assert perfect["prefetch_hits"] + perfect["late"] == perfect["prefetched"]
assert gate["prefetch_hits"] + gate["late"] < gate["prefetched"]
assert perfect["seconds"] < gate["seconds"] <= none["seconds"] * 1.01
assert perfect["read_bytes_per_token"] <= none["read_bytes_per_token"] * 1.01
assert auto["prefetch"] == "gate" and auto["seconds"] == gate["seconds"]
assert none["loads"] >= perfect["loads"] * .9' "$D/a"
s=$?
[ $s -eq 0 ] || sed 's/^/# /' "$D/err"
verdict $s 'prefetches: perfect, drawn at random, the same twice'

"$S" replay "$D/t" --simulate-drive 1 --policy dhd,lru --csv > "$D/csv" &&
    python3 -c 'import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert len(rows) == 2 and rows[1]["policy"] == "lru"
assert float(rows[0]["seconds_per_token"]) > 0' "$D/csv"
verdict $? csv
"$S" replay "$D/t" --simulate-drive 1 --policy dhd | grep -q '^dhd  *none'
verdict $? table
POLICIES="--policy dhd,lru,min,static-pin --pin $D/t"
"$S" replay "$D/t" $POLICIES --prefetch none,path,perfect,gate \
    --simulate-drive 0.5 --simulate-drive 0.1 --memory 400M,64G,2T --compute 5 > "$D/out" &&
    "$S" replay "$D/t" $POLICIES --prefetch none,path,table,ema,prev,perfect \
        --frames 1,7,123456 >> "$D/out" &&
    [ "$(grep -c static-pin "$D/out")" -eq 42 ] &&
    ! grep -v "^$D/t$" "$D/out" | grep -nE '^.{80}|[0-9]-' | sed 's/^/# /' |
    grep .
verdict $? 'no table is wider than 79 columns'
"$S" replay "$D/t" --memory 1G > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && grep -q 'need --simulate-drive' "$D/err"
verdict $? 'time without a drive: usage'
"$S" replay "$D/t" --prefetch gate > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && grep -q 'gate needs a --simulate-drive' "$D/err"
verdict $? 'a gate without a clock: usage'
"$S" replay "$D/t" --simulate-drive 1 --compute "$D/csv" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'neither seconds nor a report' "$D/err"
verdict $? 'no report: one sentence'
"$S" replay "$D/t" --simulate-drive 1 --model "$D/tiny" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'the config has' "$D/err"
verdict $? 'the config of another model: one sentence'
"$S" replay "$D/t" --simulate-drive 1 --memory 1M > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'below the floor' "$D/err"
verdict $? 'below the floor: one sentence'
echo "1..$n"
