#!/bin/sh
# Goal    plan --batch tells how many sequences are best for a budget: what each
#         number reads, what fits, and that a job plans as it says.
# Method  a config of small tensors, a slow drive; the JSON is checked against
#         itself and against a batch with as many sequences.
. tests/tap.sh
$S synth "$D/model" --preset tiny || exit 1
mkdir "$D/bare" && cp "$D/model/config.json" "$D/bare"
$S plan "$D/bare" --batch -m 60M --simulate-drive 0.01 -t 1 --json > "$D/plan"
verdict $? "plan --batch needs nothing but config.json"
python3 - "$D/plan" << 'PY'
import json, sys
plan = json.load(open(sys.argv[1]))
curve, best = plan["batch"]["curve"], plan["batch"]["best_sequences"]
assert [c["sequences"] for c in curve] == list(range(1, 257))
fits = [c for c in curve if c["fits"]]
assert fits == curve[:len(fits)] and 1 < len(fits) < 256
assert all(c["floor_bytes"] > 60 << 20 for c in curve[len(fits):])
for c in fits:
    assert c["rows"] >= c["sequences"] and c["floor_bytes"] <= 60 << 20
timed = [c for c in curve if "tokens_per_s" in c]
assert {1, 2, 3, 4, 6, 8} <= {c["sequences"] for c in timed}
assert timed[-1] == fits[-1]
for c in timed:
    assert c["tokens_per_s"] * c["seconds_per_pass"] >= .99 * c["sequences"]
most = max(c["tokens_per_s"] for c in timed)
assert curve[best - 1]["tokens_per_s"] >= .98 * most
PY
verdict $? "the curve is for 1 to 256, and has its best"
for i in 1 2 3; do echo "{\"id\":$i,\"prompt\":[$i],\"max_tokens\":3}"; done \
    > "$D/in"
$S batch "$D/model" -i "$D/in" -o "$D/out" -m 60M -t 1 --simulate-drive 0.01 \
    --report "$D/report" 2> "$D/err"
python3 - "$D/plan" "$D/report" << 'PY'
import json, sys
plan, report = (json.load(open(f)) for f in sys.argv[1:])
curve = plan["batch"]["curve"][report["plan"]["sequences"] - 1]
for name in "sequences", "resident_bytes":
    assert curve[name] == report["plan"][name], name
assert report["batch"]["measured"]["sequences"] == curve["sequences"]
PY
verdict $? "a batch has the plan that was told"
echo "1..$n"
