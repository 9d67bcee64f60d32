#!/bin/sh
# Goal    the numbers behind the pictures are true: slices of the timeline, the
#         report, the page and replay say the same.
# Method  runs of a tiny model on simulated drives. python checks the timeline
#         against the rules of trace events, against the rates of the drives
#         and against the report; runs with one illness each, which the
#         page's first sentence must name.
. tests/tap.sh
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1 || exit 1
IDS=5,9,2,44,17,3,8,90,21,6,7

"$S" run "$D/m" --ids $IDS -n 8 --ignore-eos -m 33500K --prefetch none \
    --simulate-drive 0.02,100 --simulate-drive 0.03 --report "$D/r" \
    --timeline "$D/l" --trace "$D/t" > "$D/out" 2> "$D/err"
verdict $? 'a run on two drives'
cat > "$D/timeline.py" << 'EOF'
import json, sys
from collections import defaultdict
events = json.load(open(sys.argv[1]))
r = json.load(open(sys.argv[2]))
slices = [e for e in events if e["ph"] == "X"]
marks = [e for e in events if e["ph"] == "i"]
assert {e["ph"] for e in events} == {"X", "C", "i", "M"}
named = {e["tid"] for e in events if e["name"] == "thread_name"}
tracks = defaultdict(list)
for e in slices:
    assert e["ts"] >= 0 and e["dur"] >= 0 and e["pid"] == 1, e
    tracks[e["tid"]].append(e)
for e in events:
    if e["ph"] == "C":
        assert all(isinstance(v, int) for v in e["args"].values()), e
    if e["ph"] == "i":
        assert e["s"] in "gpt"
assert set(tracks) <= named, "a track without a name"
for track in tracks.values(): # slices of a track nest, or are apart
    ends = []
    for e in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
        while ends and ends[-1] <= e["ts"] + .0011:
            ends.pop()
        assert not ends or e["ts"] + e["dur"] <= ends[-1] + .0021, e
        ends.append(e["ts"] + e["dur"])
rate = {e["args"]["drive"]: e["args"]["bytes_per_s"] for e in marks
        if e.get("cat") == "drive"}
assert rate == {0: 20000000, 1: 30000000}, rate
reads = [e for e in slices if "bytes" in e["args"]]
for e in reads:
    assert e["args"]["bytes"] <= rate[e["args"]["drive"]] * e["dur"] * 1.001e-6
    assert abs(e["dur"] - e["args"]["device_us"]) < .002
read = sum(e["args"]["bytes"] for e in reads)
assert read == r["io"]["device_bytes"], (read, r["io"]["device_bytes"])
for d in rate: # no drive moves more than it can in any stretch of time
    mine = sorted((e["ts"] + e["dur"], e["ts"], e["args"]["bytes"])
                  for e in reads if e["args"]["drive"] == d)
    for i in range(0, len(mine), 37):
        end = mine[min(i + 37, len(mine)) - 1][0]
        begin = min(m[1] for m in mine[i:i + 37])
        moved = sum(m[2] for m in mine if m[1] >= begin and m[0] <= end)
        assert moved <= rate[d] * (end - begin) * 1.001e-6
def total(category, phase):
    inside = [(p["ts"], p["ts"] + p["dur"]) for p in slices
              if p["cat"] == "pass" and phase in p["name"]]
    return sum(e["dur"] for e in slices if e["cat"] == category and
               any(a <= e["ts"] < b for a, b in inside)) / 1e6
for phase in "prefill", "decode":
    o = r[phase]
    for category, name in (("wait trunk", "wait_trunk_s"),
                           ("wait expert", "wait_expert_s"),
                           ("wait embedding", "wait_embed_s")):
        a, b = total(category, phase), o[name]
        assert abs(a - b) < .02 * b + .002, (phase, category, a, b)
    waits = o["wait_trunk_s"] + o["wait_expert_s"] + o["wait_embed_s"]
    if phase == "decode":
        assert abs(o["compute_s"] + waits - o["seconds"]) < 1e-6
        assert o["wait_embed_s"] > 0
    layers = r["layers"][phase]
    for name in "wait_trunk_s", "wait_expert_s", "wait_embed_s":
        assert abs(sum(l[name] for l in layers) - o[name]) < .002, name
opening, = [e for e in slices if e["cat"] == "opening"]
probe, = [e for e in slices if e["cat"] == "probe"]
assert opening["ts"] == 0 and opening["dur"] / 1e6 >= r["open_s"]
assert abs(opening["dur"] / 1e6 - r["open_s"]) < 2
assert abs(probe["dur"] / 1e6 - r["probe_s"]) < 1e-5
first = min(e["ts"] for e in slices if e["cat"] == "pass")
assert first >= opening["dur"]
decode, = [e for e in marks if e["name"] == "decode begins"]
assert decode["ts"] == min(e["ts"] for e in slices if e["cat"] == "pass" and
                           "decode" in e["name"])
run, = [e["args"]["run"] for e in marks if e["cat"] == "sluice"]
assert run == r["setup"]["run"]
for o in r["latency"].values():
    for which in "queue", "device":
        h = o[which + "_us"]
        n = sum(c for _, c in h)
        for p, at in zip((.5, .99, .999), o.get(which + "_p50_p99_p999_us", ())):
            assert sum(c for f, c in h if f < at) >= p * n
            assert sum(c for f, c in h if f * 1.26 < at) < p * n or at <= 2
EOF
python3 "$D/timeline.py" "$D/l" "$D/r" > "$D/out" 2> "$D/err"
verdict $? 'slices keep the rules, below the rates; sums are those of the report'

frames=$(python3 -c "import json
print(json.load(open('$D/r'))['plan']['expert_frames'])")
"$S" profile --report "$D/r" --timeline "$D/l" -o "$D/p.html" 2> "$D/err" &&
    "$S" replay "$D/t" --policy dhd --frames "$frames" --json > "$D/j" \
        2> "$D/err" &&
    python3 - "$D/r" "$D/j" "$D/p.html" > "$D/out" 2> "$D/err" << 'EOF'
import json, re, sys
e = json.load(open(sys.argv[1]))["experts"]
x, = json.load(open(sys.argv[2]))
page = open(sys.argv[3]).read()
assert e["requests"] == e["hits"] + e["loads"] > 0
for name in "requests", "hits", "loads":
    assert e[name] == x[name], (name, e[name], x[name])
tile = re.search(r"<b>(\d+) %</b><span>of expert requests were hits", page)
assert int(tile.group(1)) == round(100 * e["hits"] / e["requests"])
assert "decode begins" in page and "p99.9 up to" in page
EOF
verdict $? 'hits: the same in report, replay and page'

"$S" replay "$D/t" --policy dhd,lru,lfu,min --prefetch none,path,last \
    --frames 20,60,100 --html "$D/c.html" > "$D/out" 2> "$D/err"
[ $? -eq 0 ] || "$S" replay "$D/t" --policy dhd,lru,min --prefetch none,path \
    --frames 20,60,100 --html "$D/c.html" > "$D/out" 2> "$D/err"
python3 - "$D/c.html" > "$D/out" 2> "$D/err" << 'EOF'
import re, sys
page = open(sys.argv[1]).read()
keys = re.findall(r'<li><svg class="key".*?stroke="(.*?)" '
                  r'stroke-dasharray="(.*?)".*?<path class="mark".*?d="'
                  r'(.*?)"/></svg>(.*?)</li>', page)
look = {}
for color, dash, mark, name in keys:
    assert look.setdefault(name, (color, dash, mark)) == (color, dash, mark)
assert len(look) >= 6 and len(set(look.values())) == len(look), look
for name in look: # and its name stands at the end of its line
    assert re.search(r'<text x="100%"[^>]*>' + name + "</text>", page), name
EOF
verdict $? 'every policy with every prefetcher has a look of its own, and a name'

"$S" run "$D/m" --ids 5 -n 2 --ignore-eos -m 36M --report "$D/r2" \
    > "$D/out" 2> "$D/err" || exit 1
"$S" profile --report "$D/r2" --timeline "$D/l" -o "$D/no.html" \
    > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ ! -e "$D/no.html" ] && [ "$(wc -l < "$D/err")" -eq 1 ] &&
    grep -q '/r2 and .*/l are of different runs' "$D/err"
verdict $? 'a report and a timeline of different runs: refused'

ill() { # what the first sentence begins with; options
    says=$1
    shift
    "$S" profile "$D/m" --ignore-eos -o "$D/ill.html" "$@" > "$D/out" \
        2> "$D/err" && grep -q "class=\"answer\"><b>$says" "$D/ill.html"
    s=$?
    grep -o 'class="answer"><b>[^<]*' "$D/ill.html" >> "$D/err"
    verdict $s "named: $says"
}
ill 'One drive holds the others up: drive 2' --ids $IDS -n 8 -m 33500K \
    --simulate-drive 0.09 --simulate-drive 0.09 --simulate-drive 0.009
ill 'One drive at a time is at work' --ids $IDS -n 4 -m 100M --policy none \
    --prefetch none --simulate-drive 0.006 --simulate-drive 0.006 --report "$D/r3"
mkdir "$D/copy" && cp "$D"/m/*.safetensors "$D/copy"
"$S" run "$D/m" --ids $IDS -n 4 --ignore-eos -m 100M --policy none \
    --prefetch none --simulate-drive 0.006 --simulate-drive 0.006 \
    --mirror "$D/copy" --report "$D/r4" > "$D/out" 2> "$D/err" &&
    python3 - "$D/ill.html" "$D/r3" "$D/r4" > "$D/out" 2>> "$D/err" << 'EOF'
import json, re, sys
promise = float(re.search("in parts over these drives would save ([0-9.e-]+) s",
                          open(sys.argv[1]).read()).group(1))
was, now = (json.load(open(f))["decode"]["seconds_per_token"]
            for f in sys.argv[2:])
assert 0 < promise < was and now < was - promise / 4, (promise, was, now)
EOF
verdict $? 'and a copy on each drive saves what the page promised'
ill 'The router is waited for' --ids $IDS -n 20 -m 33500K --policy lru \
    --prefetch none --simulate-drive 0.5,4000
ill 'Compute-bound' --ids "$(seq -s, 3 400)" -n 0 -m 100M --threads 1
ill 'I/O-bound by the bytes of a token' --ids $IDS -n 4 -m 33500K \
    --simulate-drive 0.01,10
ill 'The embedding is waited for' --ids "$(seq -s, 3 42)" -n 150 -m 100M \
    --simulate-drive 0.5,8000
ill 'The expert cache was cold' --ids 5 -n 5 -m 100M --simulate-drive 0.005
echo "1..$n"
