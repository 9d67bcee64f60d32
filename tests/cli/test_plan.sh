#!/bin/sh
# Goal    sluice plan says, from config.json alone, what a run of the published
#         files then does, and refuses what it cannot plan.
# Method  a small oracle model: its plan objects against those of runs at the
#         same options, and the bytes a token of the plan against those read.
. tests/tap.sh
MODEL=tests/oracle/fixtures/a
# fails NAME STATUS WORDS command...: exit STATUS, WORDS on stderr, no stdout
fails() {
    name=$1 status=$2 words=$3
    shift 3
    "$@" > "$D/out" 2> "$D/err"
    [ $? -eq "$status" ] && grep -q -- "$words" "$D/err" && [ ! -s "$D/out" ]
    s=$?
    [ $s -eq 0 ] || cat "$D/err"
    verdict $s "$name"
}
field() { # file name: the number at that name, first one
    sed -n "s/^ *\"$2\": \([0-9.]*\),*\$/\1/p" "$1" | head -n 1
}
# as_run NAME MEMORY [option...]: the plan object and the bytes a token are the
# run's
as_run() {
    name=$1 memory=$2
    shift 2
    "$S" plan "$D/config" -m "$memory" -t 2 --rows 3 "$@" --json \
        > "$D/plan.json" 2> "$D/err" &&
    "$S" run $MODEL --ids 1,2,3 -n 5 -m "$memory" -t 2 --rows 3 --ignore-eos \
        --policy none --prefetch none "$@" --report "$D/run.json" \
        > "$D/out" 2>> "$D/err" &&
    "$S" run $MODEL --ids 1,2,3 -n 1 -m "$memory" -t 2 --rows 3 "$@" \
        --report "$D/run1.json" >> "$D/out" 2>> "$D/err" &&
    python3 - "$D" << 'PY'
import json, sys
plan, run, run1 = (json.load(open(sys.argv[1] + "/" + f + ".json"))
                   for f in ("plan", "run", "run1"))
assert plan["plan"] == run1["plan"], (plan["plan"], run1["plan"])
assert plan["read_bytes_per_token"] == run["decode"]["read_bytes_per_token"]
assert all(plan[k] == v for k, v in plan["plan"].items())
PY
    s=$?
    [ $s -eq 0 ] || cat "$D/err"
    verdict $s "$name"
}

least() { # plan's words: the floor
    "$S" plan "$@" --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["ladder"][0]["floor_bytes"])'
}
mkdir "$D/config" && cp $MODEL/config.json "$D/config"
"$S" plan "$D/config" --json > "$D/plan.json"
verdict $? "plans when no memory is given"
floor=$(least "$D/config")
"$S" plan "$D/config" -m "$floor" --json > "$D/floor.json" && [ -n "$floor" ] && [ "$floor" = "$(field "$D/floor.json" budget_bytes)" ]
verdict $? "and at the floor"
as_run "a run at the floor" "$(least "$D/config" -t 2)"
as_run "a run with some of the trunk" $((floor + 1500000))
as_run "a run with everything" 1G
as_run "a run that keeps and prefetches no experts" 1G \
    --policy none --prefetch none
as_run "a run on two drives" $((floor + 2500000)) \
    --simulate-drive 2 --simulate-drive 1
fails "one byte below the floor" 1 "below the floor of $floor bytes" \
    "$S" plan "$D/config" -m $((floor - 1))
fails "no folder" 2 "needs the folder" "$S" plan
fails "no such folder" 1 "nowhere/config.json" "$S" plan "$D/nowhere"
fails "an option that is not one" 2 "unknown option" "$S" plan "$D/config" --x
fails "a context of nothing" 2 "context" "$S" plan "$D/config" -c 0
"$S" plan "$D/config" -m 1G --simulate-drive 7 > "$D/out" 2> "$D/err" &&
    grep -q "best buy next" "$D/out" && grep -q "assumes:" "$D/out" &&
    grep -q "^> 1 " "$D/out" && [ ! -s "$D/err" ]
verdict $? "a table for people"

# The curve of a batch begins with what one sequence reads, never needs less
# memory for more sequences, and its best is among those that fit.
"$S" plan "$D/config" -m $((floor * 2)) -t 2 --rows 1 --batch \
    --simulate-drive 1 --json > "$D/plan.json" 2> "$D/err" && python3 - "$D/plan.json" << 'PY'
import json, sys
p = json.load(open(sys.argv[1]))
curve, best = p["batch"]["curve"], p["batch"]["best_sequences"]
assert [f["sequences"] for f in curve] == list(range(1, 257))
assert curve[0]["fits"] and best and curve[best - 1]["fits"]
floors = [f["floor_bytes"] for f in curve]
assert floors == sorted(floors)
fits = [f["fits"] for f in curve]
assert fits == sorted(fits, reverse=True)
timed = [f for f in curve if "tokens_per_s" in f]
most = max(f["tokens_per_s"] for f in timed)
assert curve[best - 1]["tokens_per_s"] > 0.95 * most
assert all(f["fits"] for f in timed) and len(timed) > 5
for f in timed:
        read = f["read_bytes_per_token"] * f["sequences"]
        assert abs(read - f["trunk_bytes"] - f["expert_bytes"]) < 0.1 * read
PY
verdict $? "the curve of a batch"

"$S" synth "$D/k3" --preset k3 --sparse > "$D/out" 2>&1 || exit 1
rm "$D"/k3/*.safetensors
"$S" plan "$D/k3" --json -m "$(least "$D/k3" -m 2G)" > "$D/k3.json" &&
    [ "$(field "$D/k3.json" read_bytes_per_token)" = 136990274560 ]
verdict $? "K3 at the floor reads 136,990,274,560 bytes a token"
if grep -q fsanitize "${BUILD:-build}/flags"; then
    skip "a hidden size of 65,536 is planned" "long with a sanitizer"
else
    mkdir "$D/wide" && sed 's/"hidden_size": 7168/"hidden_size": 65536/' \
        "$D/k3/config.json" > "$D/wide/config.json" &&
        "$S" plan "$D/wide" > "$D/wide/out" &&
        grep -q "the table is not simulated" "$D/wide/out" &&
        [ "$(grep -c '^  [0-9.]*  *[0-9.]*  *[0-9]* ' "$D/wide/out")" -gt 8 ]
    verdict $? "a hidden size of 65,536 is planned"
fi
# Of twelve layers, since every figure of a plan is a simulation.
"$S" synth "$D/few" --preset k3 --sparse --num-hidden-layers 12 \
    > "$D/out" 2>&1 || exit 1
rm "$D"/few/*.safetensors
two="--simulate-drive 6 --simulate-drive 6"
four="$two $two"
"$S" plan "$D/few" -m 5G $four --json > "$D/four" &&
    "$S" plan "$D/few" -m 5G $four $four --json > "$D/eight" &&
    python3 - "$D/four" "$D/eight" << 'PY'
import json, sys
four, eight = (json.load(open(f)) for f in sys.argv[1:])
assert four["floor_bytes"] == eight["floor_bytes"]
assert eight["seconds_per_token"] < four["seconds_per_token"] < 1.2
PY
verdict $? "one ring for all drives: eight are faster than four at 5 GiB"
echo "1..$n"
