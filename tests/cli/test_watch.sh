#!/bin/sh
# Goal    --trace and --timeline tell what the session did, to the last byte,
#         and change nothing.
# Method  a tiny model over budgets, policies and rows a pass; the trace goes
#         through `sluice replay` with the same policy and frames and must give
#         the report's counts; the timeline's slices are added up and must give
#         the report's bytes and waits. A run that is killed leaves a trace that
#         is good up to its last pass.
. tests/tap.sh
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1 || exit 1
IDS=5,9,2,44,17,3,8,90,21,6,7

run() { # options of run; the report is $D/r
    rm -f "$D/r" "$D/t" "$D/l"
    "$S" run "$D/m" --ids $IDS -n 5 --ignore-eos --report "$D/r" "$@" \
        > "$D/ids" 2> "$D/err" || sed 's/^/# /' "$D/err"
}

cat > "$D/counts.py" << 'PY'
import json, subprocess, sys
sluice, report, trace = sys.argv[1:]
r = json.load(open(report))
frames = r["plan"]["expert_frames"]
x = json.loads(subprocess.run(
    [sluice, "replay", trace, "--policy", r["policy"], "--frames", str(frames),
     "--json"], capture_output=True, check=True).stdout)[0]
e = r["experts"]
for o, name, old in ((r["prefill"], "expert_prefetch_bytes",
                      "expert_guess_bytes"),
                     (r["decode"], "expert_prefetch_bytes",
                      "expert_guess_bytes"),
                     (e, "prefetched", "guessed"),
                     (e, "prefetch_hits", "guess_hits"),
                     (x, "prefetched", "guessed"),
                     (x, "prefetch_hits", "guess_hits")):
    if o[name] != o[old]:
        sys.exit(f"# {name} and its old name differ")
size = r["plan"]["staging_bytes"] // r["plan"]["staging_frames"]
for name in "requests", "hits", "loads", "evictions", "bypassed":
    if x[name] != e[name]:
        sys.exit(f"# {name}: replay {x[name]}, engine {e[name]}")
read = sum(r[p]["expert_demand_bytes"] + r[p]["expert_prefetch_bytes"]
           for p in ("prefill", "decode"))
size = read // x["loads"]
if x["loads"] * size != read:
    sys.exit("# bytes are no multiple of the loads")
tokens = r["decode"]["tokens"]
decode = (r["decode"]["expert_demand_bytes"]
          + r["decode"]["expert_prefetch_bytes"])
if x["decode_loads"] * size != decode:
    sys.exit(f"# decode bytes: replay {x['decode_loads'] * size}, {decode}")
if r["prefill"]["passes"] + r["decode"]["passes"] != len(x["step_loads"]):
    sys.exit("# passes")

# The columns: where experts were, weights, time.
import struct
t = open(trace, "rb").read()
header, = struct.unpack_from("<I", t, 12)
layers, first, _, experts, k = struct.unpack_from("<5H", t, 20)
cells, how, us, at, token = layers * k, [0] * 5, 0, header, []
while at < len(t):
    size, = struct.unpack_from("<I", t, at)
    token.append(struct.unpack_from("<I", t, at + 12)[0])
    weights = struct.unpack_from(f"<{cells}H", t, at + 24 + 2 * cells)
    for m in range(layers):
        if abs(sum(weights[m * k:m * k + k]) - 65535) > k:
            sys.exit("# weights of a row do not add up to 1")
    for h in t[at + 24 + 4 * cells:at + 24 + 5 * cells]:
        how[h] += 1
    step = struct.unpack_from("<I", t, at + 16)[0]
    if at + size == len(t) or struct.unpack_from("<I", t, at + size + 16)[0] \
            != step: # rows of a pass have the same times
        us += sum(struct.unpack_from(f"<{4 * layers}I", t,
                                     at + 24 + 5 * cells))
    at += size
if how[0] + how[2] + how[3] != e["loads"] or how[1] + how[4] != e["hits"]:
    sys.exit(f"# hit column {how}")
spent = sum(r[p]["seconds"] for p in ("prefill", "decode")) * 1e6
if not .3 * spent < us <= spent:
    sys.exit(f"# timing column: {us} us of {spent}")
if r["prompt_ids"] and token[:len(r["prompt_ids"])] != r["prompt_ids"]:
    sys.exit("# token ids")
print(frames)
PY
partial=0
for policy in dhd lru lru-layer ema s3fifo none; do
    for memory in 36M $([ $policy = dhd ] && echo 34M 60M || echo 37M); do
        rows=$((1 + (partial + n) % 4 * 3))
        run -m $memory --policy $policy --rows $rows --trace "$D/t"
        frames=$(python3 "$D/counts.py" "$S" "$D/r" "$D/t")
        s=$?
        [ $s -eq 0 ] || echo "$frames"
        case $frames in 0 | 168) ;; *) partial=$((partial + 1)) ;; esac
        verdict $s "replay = engine: $policy, $memory, $rows rows, frames $frames"
    done
done
[ $partial -gt 3 ]
verdict $? 'some budgets held some of the experts'

# Many sequences: slots are used again, prompts end in decode passes.
python3 -c 'import json
for i in range(7):
    print(json.dumps({"custom_id": str(i), "method": "POST",
        "url": "/v1/completions", "body": {"prompt": "ab c" * (i % 3 + 1) + "d",
        "max_tokens": 4 + i}}))' > "$D/in"
for options in '-m 37M --sequences 2' '-m 40M --sequences 3 --draft 2'; do
    rm -f "$D/out.jsonl"
    "$S" batch "$D/m" -i "$D/in" -o "$D/out.jsonl" --ignore-eos $options \
        --prefetch none --simulate-drive 0.2 --trace "$D/t" --report "$D/r" \
        > "$D/out" 2> "$D/err" &&
        python3 "$D/counts.py" "$S" "$D/r" "$D/t" > "$D/out" &&
        "$S" replay "$D/t" --simulate-drive 0.2 --policy dhd --json > "$D/x" &&
        python3 -c 'import json, sys
r, x = (json.load(open(f)) for f in sys.argv[1:])
for name in ("trunk_bytes", "embed_bytes", "expert_demand_bytes", "passes",
             "tokens"):
    if x[0][name] != r["decode"][name]:
        sys.exit("# %s: %s, engine %s" % (name, x[0][name],
                                          r["decode"][name]))
' "$D/r" "$D/x"
    s=$?
    [ $s -eq 0 ] || sed 's/^/# /' "$D/out" "$D/err"
    verdict $s "batch, replayed: $options"
done

run -m 36M
cp "$D/ids" "$D/plain"
run -m 36M --trace "$D/t" --timeline "$D/l" --simulate-drive 0.5,50
[ -s "$D/ids" ] && cmp -s "$D/ids" "$D/plain"
verdict $? 'the same ids with and without'

cat > "$D/sums.py" << 'PY'
import json, sys
r, events = (json.load(open(f)) for f in sys.argv[1:])
slices = [e for e in events if e["ph"] == "X"]
for t in {e["tid"] for e in slices}:
    at = 0
    for e in sorted((e for e in slices if e["tid"] == t and
                     e["cat"] not in ("pass", "opening")),
                    key=lambda e: e["ts"]):
        if e["ts"] < at - .002 or e["dur"] < 0:
            sys.exit(f"# slices overlap on track {t}: {e}")
        at = e["ts"] + e["dur"]
if any(e.get("cat") == "lost" for e in events):
    sys.exit("# events were lost")
for c, l in r["latency"].items():
    reads = [e for e in slices if e["args"].get("class") == c]
    if (len(reads), sum(e["args"]["bytes"] for e in reads)) != (
            l["reads"], l["device_bytes"]):
        sys.exit(f"# reads of {c}")
    for h in "queue_us", "device_us":
        if sum(n for _, n in l[h]) != l["reads"]:
            sys.exit(f"# histogram {h} of {c}")
def near(a, b, what):
    if abs(a - b) > 1e-5 + 1e-4 * b:
        sys.exit(f"# {what}: {a}, report {b}")
for cat, name in (("wait trunk", "wait_trunk_s"),
                  ("wait expert", "wait_expert_s"),
                  ("wait embedding", "wait_embed_s")):
    total = sum(r[p][name] for p in ("prefill", "decode"))
    near(sum(e["dur"] for e in slices if e["cat"] == cat) / 1e6, total, cat)
    near(sum(l[name] for p in r["layers"].values() for l in p), total,
         "layers " + name)
near(sum(e["dur"] for e in slices if e["cat"] == "kernel") / 1e6,
     sum(s for p in r["kernels"].values() for s in p.values()), "kernels")
passes = [e for e in slices if e["cat"] == "pass"]
if len(passes) != r["prefill"]["passes"] + r["decode"]["passes"]:
    sys.exit("# passes")
names = {e["name"] for e in slices}
for name in ("L0 q_proj", "L1 experts", "L1 residual mix", "lm_head",
             "embedding"):
    if name not in names:
        sys.exit(f"# no slice named {name}")
if not {"ring", "in flight, drive 0"} <= {e["name"] for e in events
                                           if e["ph"] == "C"}:
    sys.exit("# counters")
for p in "prefill", "decode":
    for name, sums in (("trunk_bytes", ["trunk_bytes"]),
                       ("expert_bytes", ["expert_demand_bytes",
                                         "expert_prefetch_bytes"])):
        if sum(l[name] for l in r["layers"][p]) != sum(r[p][s] for s in sums):
            sys.exit(f"# layers {name} of {p}")
PY
for options in '-m 34M' '-m 60M' \
    '-m 60M --simulate-drive 0.1 --simulate-drive 0.2,100'; do
    run $options --timeline "$D/l" --rows 3
    python3 "$D/sums.py" "$D/r" "$D/l"
    verdict $? "the timeline adds up to the report: $options"
done

"$S" run "$D/m" --ids $IDS -n 400 --ignore-eos -m 36M --trace "$D/t" \
    --timeline "$D/l" 2> "$D/err" | head -c 30 > "$D/ids"
"$S" replay "$D/t" --json > "$D/out" 2> "$D/err" &&
    python3 -c 'import json, sys
x = json.load(open(sys.argv[1]))[0]
sys.exit(not 3 < len(x["step_loads"]) < 400)' "$D/out"
verdict $? 'a trace cut short by a signal replays'

"$S" run "$D/m" --ids $IDS -n 2 --timeline "$D/no/l" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "no/l: the timeline could not be written: No such" "$D/err"
verdict $? 'a timeline that cannot be made: one sentence'
"$S" run "$D/m" --ids $IDS -n 2 --trace "$D/no/t" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "no/t: the trace could not be written: No such" "$D/err"
verdict $? 'a trace that cannot be made: one sentence'
if [ -c /dev/full ]; then
    "$S" run "$D/m" --ids $IDS -n 2 --timeline /dev/full > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q "/dev/full: the timeline could not" "$D/err"
    verdict $? 'a full disk: one sentence'
fi
echo "1..$n"
