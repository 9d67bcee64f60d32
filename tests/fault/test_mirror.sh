#!/bin/sh
# Goal    copies of the shards on other drives change no bit and no byte count;
#         what is no copy is refused, what is lost is a note.
# Method  a tiny model on simulated drives with whole and partial mirrors; its
#         logits against those without; mirrors that are other files, or gone.
. tests/tap.sh
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1 || exit 1
mkdir "$D/whole" "$D/some" "$D/empty"
cp "$D"/m/*.safetensors "$D/whole"
cp "$D"/m/*-0000[2-6]-*.safetensors "$D/some"
two="--simulate-drive 0.02,100 --simulate-drive 0.03"
run() { # name, then options: the logits are those of the model alone
    name=$1
    shift
    "$S" run "$D/m" --ids 5,9,2,44,17,3,8 -n 4 --ignore-eos -m 34M \
        --prefetch none --logits "$D/$name.l" --report "$D/$name.r" "$@" \
        > "$D/out" 2> "$D/err" &&
        cmp "$D/alone.l" "$D/$name.l" >> "$D/err" 2>&1
    verdict $? "$name: the same logits"
}
run alone $two
run whole $two --mirror "$D/whole"
run some $two --mirror "$D/some"
run twice $two --simulate-drive 0.01 --mirror "$D/some" --mirror "$D/whole"
run threads --io pread --mirror "$D/whole"
python3 - "$D" > "$D/out" 2> "$D/err" << 'EOF'
import json, sys
def report(name):
    return json.load(open(sys.argv[1] + "/" + name + ".r"))
for name in "whole", "some", "twice", "threads":
    r = report(name)
    read = sum(r[p]["read_bytes"] for p in ("prefill", "decode"))
    io = r["io"]
    assert io["payload_bytes"] == read + io["resident_read_bytes"], name
whole, one = report("whole"), report("alone")
for p in "prefill", "decode": # the plans differ: less ring, more resident
    w, o = whole[p], one[p]
    assert w["expert_demand_bytes"] == o["expert_demand_bytes"]
    assert w["trunk_bytes"] <= o["trunk_bytes"]
a, b = (d["device_bytes"] for d in whole["drives"])
assert 1.1 < b / a < 2, (a, b) # 20 to 30 MB/s
assert sum(d["device_bytes"] > 0 for d in report("some")["drives"]) == 2
assert sum(d["device_bytes"] > 0 for d in report("twice")["drives"]) == 3
EOF
verdict $? 'every byte is read once, from all drives by their rates'

refused() { # name words
    "$S" run "$D/m" --ids 5 -n 1 -m 40M --mirror "$D/bad" > "$D/out" \
        2> "$D/err"
    [ $? -eq 1 ] && [ "$(grep -c . "$D/err")" -le 2 ] &&
        grep -q "^sluice: $D/bad/model-00003.*$2" "$D/err"
    verdict $? "$1"
}
cp -r "$D/whole" "$D/bad"
third=$(ls "$D"/bad/*-00003-of*)
printf x >> "$third"
refused 'another size: refused' 'has [0-9]* bytes and is no copy'
cp "$D/whole/${third##*/}" "$third"
printf Q | dd of="$third" bs=1 seek=20 conv=notrunc 2> "$D/out"
refused 'another header: refused' 'its header differs'

noted() { # name words folder
    "$S" run "$D/m" --ids 5 -n 1 -m 40M --mirror "$3" > "$D/out" \
        2> "$D/err" && grep -q "$2" "$D/err"
    verdict $? "$1"
}
noted 'a folder that is gone: a note' 'nowhere: No such file.*not used' \
    "$D/nowhere"
noted 'a folder without shards: a note' 'empty: No data.*not used' "$D/empty"
noted 'the model itself: a note' 'File exists: this copy is not used' "$D/m"
echo "1..$n"
