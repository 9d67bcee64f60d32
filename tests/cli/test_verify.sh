#!/bin/sh
# Goal    sluice verify tells everything that is wrong with a folder, a line
#         each with file and tensor, and exits 1; else it exits 0.
# Method  a tiny checkpoint, spoilt in one way after the other.
. tests/tap.sh
M=$D/m
fresh() {
    rm -rf "$M" && cp -r "$D/tiny" "$M"
}
# finds NAME PROBLEMS PATTERN...: exit 1, so many problems, these lines
finds() {
    name=$1 problems=$2
    shift 2
    "$S" verify "$M" > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q "; $problems problem" "$D/out" &&
        grep -q "^sluice: .*$problems problems* found" "$D/err"
    s=$?
    for pattern; do
        grep -q -- "$pattern" "$D/out" || { echo "# no $pattern" && s=1; }
    done
    verdict $s "$name"
}

"$S" synth "$D/tiny" --preset tiny > /dev/null 2>&1 || exit 1
fresh
"$S" verify "$M" > "$D/out" 2> "$D/err" && [ ! -s "$D/err" ] &&
    grep -q "^14 files, .* no problem$" "$D/out"
verdict $? "a sound checkpoint"
"$S" verify "$M" --json --io pread -t 1 > "$D/out" 2> "$D/err" &&
    grep -q '"problem_count": 0' "$D/out" && [ ! -s "$D/err" ]
verdict $? "as JSON, by another method"

rm "$M"/model-00002-of-* "$M"/model-00007-of-*
finds "missing shards" 2 "model-00002-of-000014.safetensors is missing" \
    "model-00007-of-000014.safetensors is missing"
fresh
truncate -s -1 "$M/model-00003-of-000014.safetensors"
printf x >> "$M/model-00004-of-000014.safetensors"
rm "$M/model.safetensors.index.json"
finds "a truncated shard and a long one" 2 "model-00003.*truncated or damaged" \
    "model-00004.*: has [0-9]* bytes, its tensors end at"
fresh
python3 - "$M" << 'PY'
import json, sys
path = sys.argv[1] + "/model.safetensors.index.json"
m = json.load(open(path))
w = m["weight_map"]
w["language_model.lm_head.weight"] = "model-00001-of-000014.safetensors"
w["language_model.nothing.weight"] = "model-00001-of-000014.safetensors"
del w["language_model.model.norm.weight"]
for i in range(20):
    w["vision%d" % i] = "vision.safetensors"
json.dump(m, open(path, "w"))
PY
finds "an index of something else" 11 \
    "index.json: names 13 more tensors" \
    "model-00014.*tensor language_model.lm_head.weight: is in model-00001" \
    "tensor [a-z0-9_.]*: should be in [a-z0-9-]*.safetensors and is not" \
    "tensor language_model.model.norm.weight: is not in model.safetensors"
echo '{' > "$M/model.safetensors.index.json"
finds "an index that is none" 1 "index.json: is not JSON"
fresh
python3 - "$M" << 'PY'
import json, struct, sys
path = sys.argv[1] + "/model-00014-of-000014.safetensors"
b = bytearray(open(path, "rb").read())
n, = struct.unpack("<Q", b[:8])
h = json.loads(b[8:8 + n])
begin, end = h["language_model.lm_head.weight"]["data_offsets"]
b[8 + n + begin:8 + n + end] = bytes(end - begin)
open(path, "wb").write(b)
PY
finds "a matrix of zeros" 1 \
    "tensor language_model.lm_head.weight: \([0-9]*\) of its \1 bytes are zero"
fresh
rm "$M/tiktoken.model"
finds "no tokenizer" 1 "tiktoken.model: No such file"
fresh
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 1000/' "$M/config.json"
finds "a config of another vocabulary" 2 "tiktoken.model: 768 ids" \
    "the config gives \[1000"
rm "$M"/*.safetensors
finds "no shards" 2 "no \*.safetensors in it"
"$S" verify "$D/nowhere" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "^sluice: $D/nowhere: No such file" "$D/err"
verdict $? "no such folder"
"$S" verify > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && grep -q "needs the folder" "$D/err"
verdict $? "no folder"
"$S" verify "$M" --io nfs > "$D/out" 2> "$D/err"
[ $? -eq 2 ]
verdict $? "no such method"
echo "1..$n"
