#!/bin/sh
# Goal    spread makes the same files whatever the threads and the number of
#         goes, alone and together, and keeps what fits; with --move a shard goes
#         only after its parts were written, synced and read back; --join gives
#         the shards back byte by byte; run, batch, verify, doctor, plan and
#         replay take parts, and say what is wrong with them.
# Method  a tiny checkpoint in three parts of unequal weights, and one of another
#         seed. The order of fsync, reading and unlink comes from strace.
. tests/tap.sh
. tests/commands.sh
misused() { # NAME WORDS command...: exit 2, a sentence with WORDS
    name=$1 words=$2
    shift 2
    "$@" > "$D/out" 2> "$D/err"
    [ $? -eq 2 ] && head -1 "$D/err" | grep -qF -- "$words"
    verdict $? "$name"
}
M=$D/model P="--parts $D/p0 --parts $D/p1 --parts $D/p2"
model() { # folder seed
    "$S" synth "$1" --preset tiny --seed "$2" --num-hidden-layers 4 \
        --num-experts 16 --full-attn-layers 4
}
model "$M" 0 && model "$D/other" 1 || exit 1
cp -r "$M" "$D/whole"

works "spread" "$S" spread "$M" --to "$D/p0=2" --to "$D/p1=1" --to "$D/p2=1"
said "says the shares" "^part 0 of 3: 50 % of the rows"
[ "$(ls "$D/p1" | wc -l)" -eq "$(ls "$M"/*.safetensors | wc -l)" ]
verdict $? "a file a shard and part"
works "with one thread" "$S" spread "$M" --jobs 1 --to "$D/q0=2" \
    --to "$D/q1=1" --to "$D/q2=1"
same "gives the same files" "$D/p1" "$D/q1"
works "one part alone" "$S" spread "$M" --only 2 --to none=2 --to none=1 \
    --to "$D/alone=1"
same "is the same" "$D/p2" "$D/alone"
[ ! -e none ]
verdict $? "and makes no other"
rm "$D/q0/model-00002-of-000005.part"
works "again, without weights" "$S" spread "$M" --to "$D/q0" --to "$D/q1" \
    --to "$D/q2" --json
said "makes what is missing" '"made": 1'
same "with the weights of before" "$D/p0" "$D/q0"
works "equal parts, by how fast the drives read" "$S" spread "$M" \
    --to "$D/e0" --to "$D/e1"
said "which are one here" "^part 1 of 2: 50 %"

mkdir "$D/bare"
cp "$M"/*.json "$M"/*.model "$D/bare" 2> /dev/null
"$S" run "$M" --ids 1,2,3,4 -n 5 --logits "$D/l0" > "$D/t0" 2> /dev/null
works "run needs the parts and a config" "$S" run "$D/bare" $P \
    --ids 1,2,3,4 -n 5 --logits "$D/l1" --report "$D/r.json" --trace "$D/trace"
cmp -s "$D/out" "$D/t0" && cmp -s "$D/l0" "$D/l1"
verdict $? "the same ids and logits"
printf '# three\n%s\np1\n\np2\n' "$D/p0" > "$D/list"
works "a file that lists them" "$S" run "$D/bare" --parts "$D/list" \
    --ids 1,2,3,4 -n 5
cmp -s "$D/out" "$D/t0"
verdict $? "too"
works "replay of that run" "$S" replay "$D/trace" --model "$D/bare" $P \
    --simulate-drive 1 --simulate-drive 1 -m 40M
printf '{"custom_id":"1","prompt":"Hello","max_tokens":4}\n' > "$D/in.jsonl"
"$S" batch "$M" -i "$D/in.jsonl" -o "$D/o0" > /dev/null 2>&1
works "batch" "$S" batch "$D/bare" $P -i "$D/in.jsonl" -o "$D/o1"
sed -i 's/"created":[0-9]*,"model":"[a-z]*"//' "$D/o0" "$D/o1"
same "the same answer" "$D/o0" "$D/o1"
works "plan" "$S" plan "$D/bare" $P -m 40M
said "counts coded bytes" "coded weights are used"
works "doctor" "$S" doctor "$D/bare" $P
said "knows them" "^ok  *parts  *3 parts of 5 files"
works "verify" "$S" verify "$D/bare" $P
said "reads them" "^15 files.*every checksum of the parts compared; no problem"

fails "a part too few" "the folders given are 2" "$S" run "$D/bare" \
    --parts "$D/p0" --parts "$D/p1" --ids 1 -n 1
fails "one twice" "is the same part as" "$S" run "$D/bare" --parts "$D/p0" \
    --parts "$D/p1" --parts "$D/p1" --ids 1 -n 1
"$S" spread "$D/other" --to "$D/o-0=2" --to "$D/o-1=1" --to "$D/o-2=1" \
    > /dev/null
fails "one of another model" "is of another model" "$S" run "$D/bare" \
    --parts "$D/p0" --parts "$D/o-1" --parts "$D/p2" --ids 1 -n 1
misused "coded weights beside them" "does not go with --parts" "$S" run \
    "$D/bare" $P --packed require --ids 1 -n 1
fails "other weights over them" "is not of this model and these weights" \
    sh -c "rm '$D/whole/model-00001-of-000005.safetensors'; '$S' spread \
    '$D/whole' --to '$D/p0=1' --to '$D/p1=1' --to '$D/p2=1'"
cp "$M/model-00001-of-000005.safetensors" "$D/whole"

f=$D/q0/model-00003-of-000005.part
printf X | dd of="$f" bs=1 seek=4099 conv=notrunc 2> /dev/null
Q="--parts $D/q0 --parts $D/q1 --parts $D/q2"
fails "verify finds a damaged byte" "is damaged" "$S" verify "$D/bare" $Q
fails "so does join" "is damaged" "$S" spread "$D/bare" --join "$D/j" $Q
truncate -s -4096 "$f"
fails "doctor finds a short file" "its head says" "$S" doctor "$D/bare" $Q
works "spread makes it anew" "$S" spread "$M" --to "$D/q0" --to "$D/q1" \
    --to "$D/q2"
same "it is whole again" "$D/p0" "$D/q0"

works "join" "$S" spread "$D/bare" --join "$D/j" $P
for f in "$M"/*.safetensors; do
    cmp "$f" "$D/j/${f##*/}" || break
done > "$D/out" 2>&1
verdict $? "gives every shard byte by byte"
[ "$(ls -A "$D/j" | wc -l)" -eq 5 ]
verdict $? "and nothing else"
works "raw parts" "$S" spread "$M" --raw --to "$D/r0=1" --to "$D/r1=1"
"$S" run "$D/bare" --parts "$D/r0" --parts "$D/r1" --ids 1,2,3,4 -n 5 \
    --logits "$D/l1" > /dev/null 2>&1
cmp -s "$D/l0" "$D/l1"
verdict $? "give the same logits"

# Moving.
misused "one part cannot be moved" "--move needs all parts" "$S" spread \
    "$D/whole" --move --only 0 --of 2 --to "$D/m0"
"$S" spread "$D/whole" --to "$D/k0=1" --to "$D/k1=1" > /dev/null
f=model-00003-of-000005
printf X | dd of="$D/k1/$f.part" bs=1 seek=4099 conv=notrunc 2> /dev/null
fails "what does not read back is not moved" "is damaged" "$S" spread \
    "$D/whole" --move --to "$D/k0=1" --to "$D/k1=1"
cmp -s "$M/$f.safetensors" "$D/whole/$f.safetensors" &&
    [ ! -e "$D/whole/model-00002-of-000005.safetensors" ]
verdict $? "its shard stays"
rm "$D/k1/$f.part"
works "made anew from it" "$S" spread "$D/whole" --move --to "$D/k0=1" \
    --to "$D/k1=1"
works "and all of it back" "$S" spread "$D/whole" --join "$D/whole" \
    --parts "$D/k0" --parts "$D/k1"
same "byte by byte" "$M" "$D/whole"
if strace -V > /dev/null 2>&1; then
    # Leaks cannot be looked for under strace.
    works "move" env ASAN_OPTIONS=detect_leaks=0 \
        strace -f -y -e trace=fsync,unlink -o "$D/strace" \
        "$S" spread "$D/whole" --move --to "$D/m0=1" --to "$D/m1=1"
    awk '/fsync\(.*\.part>/ { synced++ }
         /fsync\(.*m[01]>/ { folder++ }
         /unlink\(.*safetensors"\) = 0/ && !/skeleton/ {
             removed++
             if (synced < 2 * removed || folder < 2 * removed) early = 1 }
         END { exit early || removed != 5 }' "$D/strace"
    verdict $? "each shard after its parts are on their drives"
else
    works "move" "$S" spread "$D/whole" --move --to "$D/m0=1" --to "$D/m1=1"
    skip "each shard after its parts are on their drives" "no strace"
fi
[ "$(ls "$D/whole"/*.safetensors 2> /dev/null | wc -l)" -eq 0 ]
verdict $? "no shard is left"
works "again" "$S" spread "$D/whole" --move --to "$D/m0=1" --to "$D/m1=1" \
    --json
said "keeps all" '"kept": 10'
"$S" run "$D/whole" --parts "$D/m0" --parts "$D/m1" --ids 1,2,3,4 -n 5 \
    --logits "$D/l1" > /dev/null 2>&1
cmp -s "$D/l0" "$D/l1"
verdict $? "the same logits"
works "and back into its place" "$S" spread "$D/whole" --join "$D/whole" \
    --parts "$D/m0" --parts "$D/m1"
same "as it was" "$M" "$D/whole"

# ---- nothing of somebody else is replaced ----
name=$(ls "$D"/m0/*.part | head -n 1)
fails "nor a part by a report" "$name is a file of the model" \
    "$S" run "$D/whole" --ids 3 -n 1 --report "$name"
part=$(basename "$(ls "$D"/m0/*.part | head -n 1)")
was=$(cksum < "$D/m0/$part")
fails "a part of another model stays" "$part: is a part of another model" \
    "$S" spread "$D/other" --to "$D/m0=1" --to "$D/m1=1"
[ "$(cksum < "$D/m0/$part")" = "$was" ]
verdict $? "as it was"
mkdir "$D/n0" "$D/n1" && echo 'my data' > "$D/n0/$part"
fails "and another file" "$part: is not a file of sluice spread" \
    "$S" spread "$M" --to "$D/n0=1" --to "$D/n1=1"
[ "$(cat "$D/n0/$part")" = 'my data' ]
verdict $? "as it was, too"
cp -r "$D/other" "$D/other2"
fails "shards of another model stay" "is there, and is not the shard" \
    "$S" spread "$D/whole" --join "$D/other2" --parts "$D/m0" --parts "$D/m1"
same "all of them" "$D/other" "$D/other2"
echo "1..$n"
