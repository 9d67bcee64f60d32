#!/bin/sh
# Goal    bytes of the system are not UTF-8: every command that prints JSON says
#         paths and sentences with them escaped; none prints an empty result and
#         exits with 0.
# Method  a model in a folder called a\xffb; each --json and report is read by
#         python's strict parser.
. tests/tap.sh
B=$(printf 'a\377b')
M=$D/$B
"$S" synth "$M" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 > "$D/out" 2> "$D/err" || exit 1
good() { # FILE: is JSON, not empty, in UTF-8
    python3 -c 'import json, sys
v = json.loads(open(sys.argv[1], "rb").read().decode())
sys.exit(not v or "a\\xffb" not in json.dumps(v).replace("\\\\", "\\"))' "$1" \
        2>> "$D/err"
}
"$S" run "$M" --ids 3 -n 1 -c 64 --report "$D/r" --trace "$D/$B.trace" \
    > "$D/out" 2> "$D/err"
[ $? -eq 0 ] && good "$D/r"
verdict $? "a report"
"$S" replay "$D/$B.trace" --json > "$D/out" 2> "$D/err"
[ $? -eq 0 ] && good "$D/out"
verdict $? "replay --json"
"$S" replay "$D/$B.trace" --simulate-drive 1 -m 1G --json > "$D/out" 2> "$D/err"
[ $? -eq 0 ] && good "$D/out"
verdict $? "replay --simulate-drive --json"
echo '{"custom_id": "1", "prompt": [3], "max_tokens": 1}' > "$D/in"
echo '{"custom_id": "2", "prompt": [3], "model": "other"}' >> "$D/in"
"$S" batch "$M" -i "$D/in" -o "$D/o" -c 64 > "$D/out" 2> "$D/err"
[ $? -eq 3 ] && grep '"custom_id":"1"' "$D/o" > "$D/o1" && good "$D/o1" &&
    python3 -c 'import sys; open(sys.argv[1], "rb").read().decode()' "$D/o" \
        2>> "$D/err"
verdict $? "the answers of a batch"
"$S" doctor "$M" --json > "$D/out" 2> "$D/err"
good "$D/out"
verdict $? "doctor --json"
printf 'x' | dd of="$(ls "$M"/*.safetensors | head -n 1)" bs=1 seek=9 \
    conv=notrunc 2> /dev/null
"$S" verify "$M" --json > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && { [ ! -s "$D/out" ] || good "$D/out"; }
verdict $? "verify --json"
"$S" compare "$D/r" "$D/r" --json > "$D/out" 2> "$D/err" &&
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$D/out"
verdict $? "compare --json"
"$S" plan "$M" --json > "$D/out" 2> "$D/err" &&
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$D/out"
verdict $? "plan --json"
echo "1..$n"
