#!/bin/sh
# Goal    pack makes the same files whatever the threads and the number of goes,
#         keeps what fits and makes anew what does not; verify and doctor tell a
#         whole, partial, stale, damaged and foreign sidecar apart.
# Method  a tiny checkpoint, its sidecars, and those of another seed.
. tests/tap.sh
. tests/commands.sh
M=$D/model P=$D/model.packed
model() { # folder seed
    "$S" synth "$1" --preset tiny --seed "$2" --num-hidden-layers 5 \
        --num-experts 16 --full-attn-layers 4
}
model "$M" 0 && model "$D/other" 1 || exit 1

works "pack" "$S" pack "$M"
said "a table with the kinds" "^self_attn.q_proj  *4 .* 0\.[0-9]* .*%"
said "and the scales" "expert scales .* 64 "
[ "$(ls "$P" | wc -l)" -eq 6 ]
verdict $? "a file a shard"
works "with one thread elsewhere" "$S" pack "$M" --to "$D/one" --jobs 1
same "gives the same files" "$P" "$D/one"
works "again" "$S" pack "$M" --json
said "keeps all" '"kept": 6'
said "and reads nothing" '"read_bytes": 0'
works "verify" "$S" verify "$M"
said "compares them" "6 coded files decoded and compared; no problem"
works "without them" "$S" verify "$M" --packed off
[ "$(grep -c coded "$D/out")" -eq 0 ]
verdict $? "does not"
works "doctor" sh -c "\"$S\" doctor \"$M\" | grep ' packed '"
said "knows them" "^ok .*all 6 shards"

rm "$P/model-00002-of-000006.pack"
"$S" doctor "$M" > "$D/out" 2> "$D/err"
said "partial is told" "coded weights of 5 of 6 shards.*lacks 1 of 6 files"
fails "verify wants all that are required" "model-00002-of-000006.pack" \
    "$S" verify "$M" --packed require
works "pack makes it" "$S" pack "$M" --json
said "and only it" '"made": 1'
same "the same as before" "$P" "$D/one"

cp "$P/model-00003-of-000006.pack" "$D/keep"
printf X | dd of="$P/model-00003-of-000006.pack" bs=1 seek=70000 conv=notrunc \
    2> /dev/null
fails "a damaged block is found" "its checksum does not match" \
    "$S" verify "$M"
cp "$D/keep" "$P/model-00003-of-000006.pack"
truncate -s -4096 "$P/model-00003-of-000006.pack"
fails "a short file is found" "its head says" "$S" verify "$M"
"$S" doctor "$M" > "$D/out" 2> "$D/err"
said "by doctor too" "warn .*5 of 6.*its head says"
works "and made anew" "$S" pack "$M" --json
said "alone" '"made": 1'
same "it is the same again" "$P" "$D/one"

touch "$M/model-00002-of-000006.safetensors"
works "another time of change" "$S" verify "$M"
works "doctor" sh -c "\"$S\" doctor \"$M\" | grep ' packed '"
said "says so" "^ok .*times differ, their samples agree"
works "pack keeps it" "$S" pack "$M" --json
said "all of it" '"kept": 6'

cp "$M/model-00004-of-000006.safetensors" "$D/base"
cp "$D/other/model-00004-of-000006.safetensors" "$M"
fails "a fine-tune with the same header" "was made from other weights" \
    "$S" verify "$M"
works "is packed anew" "$S" pack "$M" --json
said "one file" '"made": 1'
works "which is right" "$S" verify "$M"
cp "$D/base" "$M/model-00004-of-000006.safetensors"
"$S" pack "$M" > /dev/null || exit 1

works "only the scales" "$S" pack "$M" --to "$D/part" --only scales --json
said "of 64 experts" '"count": 64'
[ "$(grep -c '"kind"' "$D/out")" -eq 1 ]
verdict $? "and nothing else"
works "then the rest" "$S" pack "$M" --to "$D/part" --json
said "is made" '"made": 6'
works "a folder that is named" "$S" verify "$M" --packed "$D/part"
said "is compared" "6 coded files"
fails "one that is not there" "nowhere" "$S" verify "$M" --packed "$D/nowhere"
fails "sidecars of another model" "was made from" \
    "$S" verify "$D/other" --packed "$P"

run() { # what more... : the logits in $D/NAME.f32
    out=$1
    shift
    "$S" run "$M" --ids 5,6,7,8 -n 3 -m 96M -t 1 --ignore-eos \
        --logits "$D/$out.f32" --report "$D/$out.json" "$@" > "$D/out" \
        2> "$D/err"
}
number() { # FILE NAME: the first number of that name
    sed -n "s/.*\"$2\": \([0-9][0-9]*\).*/\1/p" "$1" | head -n 1
}
run raw --packed off && run coded && run all --packed require \
    --check-reads always && run none --check-reads off
verdict $? "runs with and without"
cmp -s "$D/raw.f32" "$D/coded.f32" && cmp -s "$D/raw.f32" "$D/all.f32" &&
    cmp -s "$D/raw.f32" "$D/none.f32"
verdict $? "the same logits"
[ "$(number "$D/coded.json" files)" -eq 6 ] &&
    [ "$(number "$D/raw.json" files)" -eq 0 ] &&
    [ "$(number "$D/coded.json" trunk_stored_bytes)" -lt \
      "$(number "$D/coded.json" trunk_decoded_bytes)" ]
verdict $? "the report counts stored and decoded bytes"
"$S" run "$M" --ids 5 -n 2 -m 30M -t 1 --rows 1 --policy none --ignore-eos \
    --prefetch none --report "$D/r.json" > "$D/out" 2> "$D/err" &&
    "$S" plan "$M" -m 30M -t 1 --rows 1 --policy none --prefetch none --json \
        > "$D/p.json" 2> "$D/err" &&
    [ "$(number "$D/p.json" trunk_bytes_per_token)" -eq \
      "$(sed -n '/"decode"/,$p' "$D/r.json" > "$D/d.json"
         number "$D/d.json" trunk_bytes)" ]
verdict $? "a run reads of the trunk what the plan says"
least=$(number "$D/p.json" floor_bytes)
"$S" run "$M" --ids 5,6 -n 3 -m "$least" -t 1 --rows 1 --policy none \
    --prefetch none --ignore-eos --report "$D/r.json" > "$D/out" \
    2> "$D/err" &&
    "$S" plan "$M" -m "$least" -t 1 --rows 1 --policy none --prefetch none \
        --json > "$D/p.json" 2> "$D/err"
sed -n '/"decode"/,$p' "$D/r.json" > "$D/d.json"
stand=$(number "$D/d.json" decoded_bytes)
plan=$(($(number "$D/p.json" decoded_bytes_per_token) * 2))
[ "$stand" -gt "$(number "$D/d.json" read_bytes)" ] &&
    [ $((stand - plan)) -lt $((plan / 200)) ] &&
    [ $((plan - stand)) -lt $((plan / 200)) ]
verdict $? "and they stand for as many"
"$S" run "$M" --ids 5,6 -n 3 -m 30M -t 1 --rows 1 --ignore-eos \
    --report "$D/r.json" --trace "$D/trace" > "$D/out" 2> "$D/err" &&
    "$S" profile --report "$D/r.json" --trace "$D/trace" -o "$D/page" \
    2> "$D/err" && grep -q "coded weights: the trunk is" "$D/page" &&
    "$S" replay "$D/trace" --simulate-drive 1 --model "$M" --policy dhd \
        --compute "$D/r.json" --json > "$D/q.json" 2> "$D/err" &&
    grep -q '"decoded_bytes_per_token"' "$D/q.json"
verdict $? "profile and replay say it too"
at_floor() { # plan's words: the plan at its floor
    floor=$("$S" plan "$M" -m 1G --json "$@" | python3 -c 'import json, sys
print(json.load(sys.stdin)["ladder"][0]["floor_bytes"])')
    "$S" plan "$M" -m "$floor" --json "$@"
}
at_floor > "$D/p.json" && at_floor --packed off > "$D/q.json" &&
    [ "$(number "$D/p.json" read_bytes_per_token)" -lt \
      "$(number "$D/q.json" read_bytes_per_token)" ] &&
    [ "$(number "$D/p.json" decoded_bytes_per_token)" -eq \
      "$(number "$D/q.json" read_bytes_per_token)" ]
verdict $? "the plan counts stored and decoded bytes"
mv "$P/model-00001-of-000006.pack" "$D/keep1"
run part
[ $? -eq 0 ] && cmp -s "$D/raw.f32" "$D/part.f32" &&
    grep -q "lacks 1 of 6 files" "$D/err"
verdict $? "a sidecar that is missing is a line, its shard is read"
run part --packed require
[ $? -eq 1 ] && grep -q "model-00001-of-000006.pack" "$D/err"
verdict $? "--packed require wants all"
mv "$D/keep1" "$P/model-00001-of-000006.pack"
run part --packed "$D/nowhere"
[ $? -eq 1 ] && grep -q "no coded weights" "$D/err"
verdict $? "a folder without any is refused"
run kept --resident coded && cmp -s "$D/raw.f32" "$D/kept.f32" &&
    [ "$(number "$D/kept.json" decoded_tiles)" -eq 0 ] &&
    run kept --resident decoded && cmp -s "$D/raw.f32" "$D/kept.f32" &&
    [ "$(number "$D/kept.json" decoded_tiles)" -gt 0 ] &&
    grep -q '"product"' "$D/coded.json"
verdict $? "--resident says how tiles are kept, else a timing"
"$S" plan "$M" -m 96M --resident decoded > "$D/out" &&
    grep -q "resident tiles are kept decoded" "$D/out" &&
    grep -q "as measured here" "$D/out" &&
    "$S" plan "$M" -m 96M --resident coded --compute 1 > "$D/out" &&
    ! grep -q "decoded, since" "$D/out" && ! grep -q "measured" "$D/out"
verdict $? "so does the plan"
"$S" run "$M" --ids 5 -n 1 --resident maybe > "$D/out" 2> "$D/err"
[ $? -eq 2 ]
verdict $? "--resident has three words"
"$S" run "$M" --ids 5 -n 1 --check-reads sometimes > "$D/out" 2> "$D/err"
[ $? -eq 2 ]
verdict $? "--check-reads has three words"

flock "$P" sleep 5 &
sleep 0.3
fails "two at once" "another pack is at work" "$S" pack "$M"
kill $! 2> /dev/null
(ulimit -f 50; "$S" pack "$M" --to "$D/full" > "$D/out" 2> "$D/err")
[ $? -eq 1 ] && grep -qi 'too large' "$D/err" &&
    [ -z "$(ls -A "$D/full")" ]
verdict $? "a full disk is a sentence and leaves nothing"
"$S" pack "$M" --only half > "$D/out" 2> "$D/err"
[ $? -eq 2 ]
verdict $? "--only has two words"
echo "1..$n"
