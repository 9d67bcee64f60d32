#!/bin/sh
# Goal    a batch's end is checked: nothing is called complete when the answers
#         were removed, the requests changed or cut, or the weights changed; and
#         no answer is kept for a request that is another one now.
# Method  a small random checkpoint with a slow simulated drive, so that files
#         can be changed while it runs; the same lines with other options.
. tests/tap.sh
M=$D/m
"$S" synth "$M" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 > "$D/out" 2> "$D/err" || exit 1
for i in 1 2 3 4 5 6; do
    echo "{\"custom_id\": \"$i\", \"max_tokens\": 14, \"prompt\": [3, $i],
        \"ignore_eos\": true}" | tr -d '\n'
    echo
done > "$D/six"
SLOW="--simulate-drive 0.01,20000 --sequences 2 -c 64 -m 31M --packed off"
# during CHANGE WORDS: change a file while the job runs; exit 1, one sentence
during() {
    cp "$D/six" "$D/in"
    rm -f "$D/o" "$D/o".*
    "$S" batch "$M" -i "$D/in" -o "$D/o" $SLOW > "$D/out" 2> "$D/err" &
    job=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 \
        21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40; do
        [ -s "$D/o.partial" ] || [ -s "$D/o" ] && break
        sleep 0.05
    done
    kill -0 $job 2> /dev/null || echo "# the job was over too early"
    eval "$1"
    wait $job
    [ $? -eq 1 ] && grep -q "^sluice: .*$2" "$D/err"
}
during 'rm "$D/o"' "o: was removed, replaced"
verdict $? "the answers are removed"
during 'cp "$D/o" "$D/o2"; mv "$D/o2" "$D/o"' "o: was removed, replaced"
verdict $? "the answers are replaced by a copy"
during ': > "$D/in"' "in: was changed during the job"
verdict $? "the requests are cut"
during 'head -n 1 "$D/six" | sed "s/\"1\"/\"7\"/" >> "$D/in"' \
    "in: was changed during the job"
verdict $? "and added to"
"$S" batch "$M" -i "$D/in" -o "$D/o" -c 64 > "$D/out" 2> "$D/err" &&
    [ "$(grep -c '"error":null' "$D/o")" -eq 7 ]
verdict $? "the same command answers what it has now"
shard=$(ls "$M"/*.safetensors | head -n 1)
during 'printf x | dd of="$shard" bs=1 seek=$(($(stat -c %s "$shard") - 1)) \
    conv=notrunc 2> /dev/null' "$(basename "$shard"): was changed, replaced"
verdict $? "a shard changes under a batch"
"$S" run "$M" --ids 3 -n 60 -c 64 -m 31M --packed off --ignore-eos \
    --simulate-drive 0.01,20000 > "$D/out" 2> "$D/err" &
job=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 \
        21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40; do
    [ -s "$D/out" ] && break
    sleep 0.05
done
touch "$shard"
wait $job
[ $? -eq 1 ] && grep -q "was changed, replaced" "$D/err"
verdict $? "and under a run"

# lines
rm -f "$D/o" "$D/o".*
head -n 2 "$D/six" > "$D/in"
printf '{"custom_id": "3", "prom' >> "$D/in"
"$S" batch "$M" -i "$D/in" -o "$D/o" -c 64 > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "still being written" "$D/err" &&
    [ "$(grep -c '"error":null' "$D/o")" -eq 2 ] && [ "$(wc -l < "$D/o")" -eq 2 ]
verdict $? "a line that was still being written"
cat "$D/in" | "$S" batch "$M" -i - -o "$D/o" -c 64 > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "still being written" "$D/err"
verdict $? "and one of a pipe"
cp "$D/six" "$D/in"
"$S" batch "$M" -i "$D/in" -o "$D/o" -c 64 > "$D/out" 2> "$D/err" &&
    [ "$(grep -c '"error":null' "$D/o")" -eq 6 ]
verdict $? "whole later: answered"

# sluice_hash
[ "$(grep -c '"sluice_hash":"[0-9a-f]\{32\}"' "$D/o")" -eq 6 ]
verdict $? "each answer has a hash"
hashes() { sed 's/.*"custom_id":"\([0-9]*\)".*"sluice_hash":"\(.*\)".*/\1 \2/' \
    "$1" | sort; }
"$S" batch "$M" -i "$D/in" -o "$D/o2" -c 64 -t 1 -m 30M --rows 4 --sequences 2 \
    --draft 2 --packed off --seed 9 > "$D/out" 2> "$D/err" &&
    [ "$(hashes "$D/o")" = "$(hashes "$D/o2")" ]
verdict $? "memory, threads, rows, drafts and packing are not in it"
ran() { "$S" batch "$M" -i "$D/in" -o "$D/o" "$@" > "$D/out" 2> "$D/err"; }
kept() { [ "$(cksum < "$D/o")" = "$was" ]; }
was=$(cksum < "$D/o")
ran -c 64 --seed 9
[ $? -eq 0 ] && kept
verdict $? "a seed changes nothing at temperature 0"
s=0
for other in "--temperature 0.5" "--mla-latent-eps 1e-5"; do
    ran -c 64 $other
    [ $? -eq 1 ] && grep -q "in: line 1 has an answer to another" "$D/err" &&
        kept || s=1
done
verdict $s "other options stop it before its first pass"
ran -c 64 --temperature 0.5 --resume ids
[ $? -eq 0 ] && kept
verdict $? "--resume ids keeps them"
sed 's/\[3, 4\]/[3, 9]/' "$D/six" > "$D/in"
echo '{"custom_id": "8", "prompt": [3], "max_tokens": 1}' >> "$D/in"
ran -c 64
[ $? -eq 1 ] && grep -q "in: line 4 has an answer to another" "$D/err" && kept
verdict $? "another prompt under the same custom_id"
"$S" batch "$M" -i - -o "$D/o" -c 64 < "$D/in" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "line 4 has an answer to another" "$D/err"
verdict $? "of a pipe as well"
sed 's/,"sluice_hash":"[^"]*"//' "$D/o" > "$D/o3" && mv "$D/o3" "$D/o"
ran -c 64
[ $? -eq 0 ] && grep -q "have no sluice_hash, and are kept" "$D/err" &&
    [ "$(wc -l < "$D/o")" -eq 7 ]
verdict $? "answers without a hash are kept, with a note"
"$S" synth "$D/m2" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 --seed 3 > "$D/out" 2> "$D/err" || exit 1
"$S" batch "$D/m2" -i "$D/six" -o "$D/o2" -c 64 > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "line 1 has an answer to another" "$D/err"
verdict $? "answers of another model are not these"
ran --resume other
[ $? -eq 2 ]
verdict $? "--resume is strict or ids"
echo "1..$n"
