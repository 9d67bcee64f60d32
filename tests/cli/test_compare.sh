#!/bin/sh
# Goal    compare names what differs between two set-ups and nothing else.
# Method  one real report, copied with noise of 1 % on its times by a seeded
#         generator: five against five of the same, five against five that are
#         8 % slower under another policy; then real reports, whose `setup`
#         holds what the command line said; then what is no report.
. tests/tap.sh
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1 || exit 1
"$S" run "$D/m" --ids 5,9,2,44 -n 6 --ignore-eos -m 36M --report "$D/r.json" \
    > "$D/out" 2> "$D/err"
verdict $? 'a report'
python3 - "$D" << 'EOF'
import json, random, sys
folder = sys.argv[1]
random.seed(7)
real = json.load(open(folder + "/r.json"))
def write(name, factor, policy):
    for i in range(5):
        r = json.loads(json.dumps(real))
        for part, key in (("decode", "seconds_per_token"),
                          ("decode", "compute_s"), ("prefill", "seconds")):
            slower = factor if key == "seconds_per_token" else 1
            r[part][key] *= slower * random.gauss(1, .01)
        r["wall_seconds"] *= random.gauss(1, .01)
        r["policy"] = policy
        json.dump(r, open(f"{folder}/{name}{i}.json", "w"))
write("a", 1, "dhd")
write("b", 1, "dhd")
write("c", 1.08, "lru")
EOF
"$S" compare "$D"/a?.json -- "$D"/b?.json > "$D/out" 2> "$D/err" &&
    grep -q 'The set-up is the same: no difference beyond noise' "$D/out" &&
    grep -q 'A: 5 runs, B: 5 runs' "$D/out" && ! grep -q 'differs' "$D/out"
verdict $? 'five against five of one set-up: no difference beyond noise'
"$S" compare "$D"/a?.json -- "$D"/c?.json > "$D/out" 2> "$D/err" &&
    grep -q '^policy differs: time a token x 1\.0[6-9]' "$D/out" &&
    grep -q '^policy *dhd *lru$' "$D/out" &&
    [ "$(grep -c '  differs$' "$D/out")" -eq 1 ]
verdict $? 'another policy: named, with its one effect and the range'
"$S" compare --json "$D"/a?.json -- "$D"/c?.json > "$D/out" 2> "$D/err" &&
    python3 - "$D/out" << 'EOF'
import json, sys
o = json.load(open(sys.argv[1]))
assert [f["field"] for f in o["setup"]] == ["policy"]
differ = [r for r in o["result"] if r["differs"]]
assert [r["name"] for r in differ] == ["time a token"]
assert differ[0]["ratio_low"] < 1.08 < differ[0]["ratio_high"]
EOF
verdict $? 'the same as JSON: the true ratio lies in the range'
"$S" compare "$D/a0.json" "$D/c0.json" > "$D/out" 2> "$D/err" &&
    grep -q 'one run in a group says nothing about noise' "$D/out"
verdict $? 'two runs: no word about noise that is not known'
real() { # name options...
    name=$1
    shift
    "$S" run "$D/m" --ids 5,9,2,44 -n 6 --ignore-eos -m 36M "$@" \
        --report "$D/$name.json" > "$D/out" 2> "$D/err"
}
real same && real lru --policy lru --seed 3 &&
    real drive --simulate-drive 0.5,40 && python3 - "$D" "$S" << 'EOF'
import json, os, subprocess, sys
folder, program = sys.argv[1:]
def report(name):
    return json.load(open(f"{folder}/{name}.json"))
r, lru = report("r"), report("lru")
s = r["setup"]
assert s["command"][1:3] == ["run", folder + "/m"], s["command"]
assert "6" in s["command"] and "--ignore-eos" in s["command"]
m, other = s["model"], lru["setup"]["model"]
shards = [f for f in os.listdir(folder + "/m") if f.endswith(".safetensors")]
assert m["shards"] == len(shards)
assert m["bytes"] == sum(os.path.getsize(f"{folder}/m/{f}") for f in shards)
assert len(m["identity"]) == 64 and m["identity"] == other["identity"]
assert s["run"] != lru["setup"]["run"] and len(s["run"]) == 32
o = s["options"]
assert o["memory_bytes"] == 36 << 20 and o["memory_given"] is True
assert o["max_tokens"] == 6 and o["ignore_eos"] is True
assert o["context"] == 4096 and o["threads"] == r["threads"]
assert (o["policy"], lru["setup"]["options"]["policy"]) == ("dhd", "lru")
assert s["host"] == os.uname().nodename and s["kernel"] == os.uname().release
assert s["drive_names"][0]["name"] and s["date"].endswith("Z")
d, = report("drive")["setup"]["drive_names"]
assert d == {"name": "simulated", "bytes_per_s": 500000000, "latency_us": 40.0}
assert 0 <= r["probe_s"] <= r["open_s"] < 60 and r["open_s"] > 0
def fields(a, b):
    out = subprocess.run([program, "compare", "--json", f"{folder}/{a}.json",
                          f"{folder}/{b}.json"], capture_output=True,
                         check=True).stdout
    return sorted(f["field"] for f in json.loads(out)["setup"])
assert fields("r", "same") == [], fields("r", "same")
assert fields("r", "lru") == ["policy", "seed"], fields("r", "lru")
assert "drive_names" in fields("r", "drive"), fields("r", "drive")
EOF
verdict $? 'setup holds what was said; compare names what differs, once'
echo '{"a": 1}' > "$D/no.json"
"$S" compare "$D/a0.json" "$D/no.json" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ ! -s "$D/out" ] && [ "$(wc -l < "$D/err")" -eq 1 ] &&
    grep -q 'no.json: not the report' "$D/err"
verdict $? 'what is no report is named'
"$S" compare "$D/a0.json" > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && [ ! -s "$D/out" ]
verdict $? 'one report is a wrong command line'
echo "1..$n"
