#!/bin/sh
# Goal    nothing is read twice: run --state and --prefix-cache, and prompts of
#         a batch that begin alike, give the bytes of an uninterrupted run and
#         read no row that is known; a file that is not of use is said and not
#         used.
# Method  a small random checkpoint. Ids and logits are compared byte by byte
#         with a run that has no state, rows are counted in the report. Budgets,
#         threads and drafts differ from process to process. Files flipped and
#         cut at many places, of another model, another epsilon, unreadable; a
#         folder without room or rights; processes side by side.
. tests/tap.sh
say() { sed -n 's/^.*"'"$1"'": \([0-9]*\).*$/\1/p' "$D/report"; }
for seed in 1 2; do
    $S synth "$D/model$seed" --preset tiny --num-hidden-layers 5 \
        --num-experts 16 --hidden-size 64 --seed $seed >"$D/out" 2>&1 || exit 1
done
M=$D/model1
run() { $S run "$M" --ignore-eos "$@" 2>"$D/err"; }
tail_is() { # part whole: the rows of a part end as the whole does
    tail -c "$(stat -c %s "$1")" "$2" | cmp -s - "$1"
}
prompt=$(seq -s, 1 40)
run --ids "$prompt" -n 20 -t 2 --logits "$D/whole" >"$D/text" || exit 1

# ---- a state ----
run --ids "$prompt" -n 20 -t 2 --logits "$D/rows" --state "$D/s" >"$D/out" &&
    cmp -s "$D/out" "$D/text" && cmp -s "$D/rows" "$D/whole"
verdict $? "a run that saves its state has the bytes of one that does not"

run --ids "$prompt,$(cat "$D/text"),7,8,9" -n 5 --logits "$D/whole2" \
    >"$D/text2" || exit 1
ok=0
for how in "-t 1" "-t 2 -m 40M" "-t 2 --draft 3" "-t 1 --rows 2"; do
    cp "$D/s" "$D/s2"
    run --ids 7,8,9 --continue -n 5 $how --logits "$D/rows" --state "$D/s2" \
        --report "$D/report" >"$D/out" && cmp -s "$D/out" "$D/text2" &&
        tail_is "$D/rows" "$D/whole2" && [ "$(say prompt_tokens_read)" = 4 ] ||
        ok=1
done
verdict $ok "the next message goes on from the file, by budget, threads, drafts"

run --ids "$prompt,$(cat "$D/text"),7" -n 5 >"$D/text1" &&
    run --ids "$prompt,$(cat "$D/text"),7" -n 5 --state "$D/s2" >"$D/out" &&
    cmp -s "$D/out" "$D/text1" && grep -q "holds other ids" "$D/err"
verdict $? "a prompt that a state is beyond is read from its beginning"

run --ids "$prompt" -n 0 --state "$D/s3" &&
    run --ids "$prompt" -n 20 --state "$D/s3" --logits "$D/rows" \
        --report "$D/report" >"$D/out" && cmp -s "$D/out" "$D/text" &&
    tail_is "$D/rows" "$D/whole" && [ "$(say prompt_tokens_read)" = 1 ]
verdict $? "a prompt read with -n 0 is not read again"

rm -f "$D/s3"
run --ids "$prompt" -n 8 --state "$D/s3" >"$D/out" &&
    run --ids "$prompt" -n 20 --state "$D/s3" --report "$D/report" \
        >"$D/out" && cmp -s "$D/out" "$D/text" &&
    [ "$(say prompt_tokens_read)" = 1 ]
verdict $? "the same prompt with more ids goes on behind those it has"

ok=0
for how in "-n 20" "-n 8" "-n 1"; do
    run --ids "$prompt" $how >"$D/text1" &&
        run --ids "$prompt" $how --state "$D/s3" --report "$D/report" \
            >"$D/out" && cmp -s "$D/out" "$D/text1" &&
        [ "$(say prompt_tokens_read)" = 0 ] && grep -q "nothing is read" \
            "$D/err" || { ok=1; echo "# $how"; }
done
verdict $ok "the same command again says what is there and reads nothing"

run --ids "$prompt" -n 20 --state "$D/s3" --temperature 1 --seed 3 \
    >"$D/hot" &&
    run --ids "$prompt" -n 8 --temperature 1 --seed 3 --state "$D/s4" \
        >"$D/out" &&
    run --ids "$prompt" -n 20 --temperature 1 --seed 4 --state "$D/s4" \
        --report "$D/report" >"$D/out" && ! cmp -s "$D/out" "$D/hot" &&
    [ "$(say prompt_tokens_read)" = 40 ]
verdict $? "ids that other sampling made are not taken"

# ---- files that are of no use ----
refused() { # file what
    run --ids "$prompt,$(cat "$D/text"),7,8,9" -n 5 --state "$1" \
        --report "$D/report" >"$D/out" && cmp -s "$D/out" "$D/text2" &&
        [ "$(say prompt_tokens_loaded)" = 0 ] && grep -q "$2" "$D/err" &&
        [ "$(grep -c '^sluice:' "$D/err")" = 1 ]
}
python3 - "$D/s" "$D" <<'PY'
import sys
whole = open(sys.argv[1], 'rb').read()
places = [0, 8, 12, 40, 100, 135, 4096, 8191 - 4095, 8192, 8300,
          len(whole) // 2, len(whole) - 1]
for i, at in enumerate(places):
    part = bytearray(whole)
    part[at] ^= 16
    open(f'{sys.argv[2]}/flip{i}', 'wb').write(part)
for i, n in enumerate([0, 50, 4096, 8192, len(whole) // 2, len(whole) - 1]):
    open(f'{sys.argv[2]}/cut{i}', 'wb').write(whole[:n])
PY
ok=0
for f in "$D"/flip* "$D"/cut*; do
    refused "$f" "$f" || { ok=1; echo "# $f"; }
done
verdict $ok "a flipped bit and a missing end are said, and the prompt is read"
cp "$D/s" "$D/s5"
M=$D/model2
run --ids "$prompt" -n 3 --state "$D/s5" >"$D/out" &&
    grep -q "another model" "$D/err"
verdict $? "another model's state is not used"
M=$D/model1
cp "$D/s" "$D/s5"
run --ids "$prompt" -n 3 --mla-latent-eps 1e-5 --state "$D/s5" >"$D/out" &&
    grep -q "another --mla-latent-eps" "$D/err"
verdict $? "nor that of another epsilon"
cp "$D/s" "$D/s5"
printf '\002' | dd of="$D/s5" bs=1 seek=8 conv=notrunc 2>/dev/null
run --ids 7 --continue -n 3 --state "$D/s5" >"$D/out"
[ $? = 1 ] && grep -q "version 2" "$D/err"
verdict $? "--continue of another version's state is an error"
run --ids "$prompt" -n 20 --state "$D/no/where" >"$D/out"
[ $? = 1 ] && cmp -s "$D/out" "$D/text" && grep -q "could not be saved" "$D/err"
verdict $? "a state that cannot be saved: the text, a sentence, status 1"
if [ -c /dev/full ] && [ "$(id -u)" = 0 ] && mkdir "$D/small" &&
    mount -t tmpfs -o size=40k tmpfs "$D/small" 2>/dev/null; then
    run --ids "$prompt" -n 20 --state "$D/small/s" >"$D/out"
    [ $? = 1 ] && cmp -s "$D/out" "$D/text" && grep -q "No space" "$D/err" &&
        [ -z "$(ls "$D/small")" ] &&
        run --ids "$prompt" -n 20 --prefix-cache "$D/small" >"$D/out" &&
        cmp -s "$D/out" "$D/text" && grep -q "No space" "$D/err"
    verdict $? "a full drive: the text, a sentence, and no part of a file"
    mount -o remount,ro "$D/small"
    run --ids "$prompt" -n 20 --state "$D/small/s" >"$D/out"
    [ $? = 1 ] && cmp -s "$D/out" "$D/text" && grep -q "Read-only" "$D/err"
    verdict $? "a drive that is read-only as well"
    umount "$D/small"
else
    skip "a full drive" "no mount here"
fi
$S run "$M" --ids 1 --continue >"$D/out" 2>"$D/err"
[ $? = 2 ] && $S run "$M" --ids 1 --state "$D/s" --state-every 5m \
    >"$D/out" 2>"$D/err"
[ $? = 2 ]
verdict $? "--continue needs a state; --state-every a number"

# A state of several blocks: a byte of each, and of each one's checksum.
$S synth "$D/wide" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 --num-heads 16 --head-dim 128 --seed 3 >"$D/out" 2>&1 || exit 1
M=$D/wide
run --ids 5,6,7,8 -n 4 -t 2 --state "$D/s6" >"$D/text3" || exit 1
run --ids "5,6,7,8,$(cat "$D/text3"),9" -n 2 -t 2 >"$D/text4" || exit 1
python3 - "$D/s6" "$D" <<'PY'
import sys
whole = open(sys.argv[1], 'rb').read()
blocks = (len(whole) - 8192 + 2**20 - 1) >> 20
assert blocks >= 3, len(whole)
places = [4096 + 4 * b for b in range(blocks)]
places += [min(8192 + (b << 20) + 7 * b + 9, len(whole) - 1)
           for b in range(blocks)]
for i, at in enumerate(places):
    part = bytearray(whole)
    part[at] ^= 1
    open(f'{sys.argv[2]}/block{i}', 'wb').write(part)
PY
ok=0
for f in "$D"/block*; do
    run --ids "5,6,7,8,$(cat "$D/text3"),9" -n 2 --state "$f" \
        --report "$D/report" >"$D/out" && cmp -s "$D/out" "$D/text4" &&
        [ "$(say prompt_tokens_loaded)" = 0 ] && grep -q "$f" "$D/err" ||
        { ok=1; echo "# $f"; }
done
rm -f "$D"/block*
verdict $ok "a flipped bit in any block, or in its checksum, is said"
M=$D/model1

# ---- the cache ----
cached() { # ids expected-rows options...
    ids=$1 rows=$2
    shift 2
    run --ids "$ids" -n 20 --prefix-cache "$D/cache,1G" --logits "$D/rows" \
        --report "$D/report" "$@" >"$D/out" && cmp -s "$D/out" "$D/text" &&
        tail_is "$D/rows" "$D/whole" && [ "$(say prompt_tokens_read)" = "$rows" ]
}
cached "$prompt" 40 -t 1 && cached "$prompt" 1 -t 2 --draft 2 &&
    cached "$prompt" 1 -m 40M
verdict $? "the second process begins where the first had read to"
run --ids "$prompt,$(cat "$D/text"),7,8,9" -n 5 --prefix-cache "$D/cache" \
    --report "$D/report" >"$D/out" && cmp -s "$D/out" "$D/text2" &&
    [ "$(say prompt_tokens_read)" = 4 ]
verdict $? "a second turn reads no row of the first"
ok=0
for f in "$D"/cache/*.seq; do
    printf 'XX' | dd of="$f" bs=1 seek=9000 conv=notrunc 2>/dev/null
done
cached "$prompt" 40 && cached "$prompt" 1 || ok=1
verdict $ok "damaged entries are read past, and replaced"
for i in 1 2 3 4; do
    (j=0; while [ $j -lt 5 ]; do
        j=$((j + 1))
        $S run "$M" --ignore-eos --ids "$prompt" -n 20 \
            --prefix-cache "$D/cache2,120K" 2>"$D/err$i" |
            cmp -s - "$D/text" || echo bad >>"$D/bad"
    done) &
done
wait
[ ! -e "$D/bad" ] && [ "$(cat "$D"/cache2/*.seq | wc -c)" -le 122880 ]
verdict $? "four processes on one folder, with room for two entries"

# ---- a batch ----
python3 - "$D/in" <<'PY'
import json, random, sys
r = random.Random(5)
common = [r.randrange(500) for _ in range(160)]
with open(sys.argv[1], 'w') as f:
    for i in range(40):
        own = [i] + [r.randrange(500) for _ in range(15)]
        f.write(json.dumps({'id': str(i), 'prompt': common + own,
                            'max_tokens': 3}) + '\n')
PY
batch() { # out options...
    out=$1
    shift
    rm -f "$D/$out"
    $S batch "$M" -i "$D/in" -o "$D/$out" --ignore-eos -c 600 --keep-order \
        --report "$D/report" "$@" >/dev/null 2>"$D/err" || return 1
    sed -i 's/"created":[0-9]*,//' "$D/$out"
}
batch plain --trace "$D/trace" && [ "$(say prompt_tokens_read)" = $((40 * 176)) ]
verdict $? "a batch with a trace reads every row"
ok=0
for many in 40 8 1; do
    batch shared --sequences $many && cmp -s "$D/shared" "$D/plain" &&
        [ "$(say prompt_tokens_read)" = $((160 + 40 * 16)) ] ||
        { ok=1; echo "# $many: $(say prompt_tokens_read)"; }
done
verdict $ok "40 requests read 160 ids once and 16 each: 800, 40, 8, 1 at a time"
batch first --prefix-cache "$D/cache3" && cmp -s "$D/first" "$D/plain" &&
    batch second --prefix-cache "$D/cache3" && cmp -s "$D/second" "$D/plain" &&
    [ "$(say prompt_tokens_read)" = 40 ]
verdict $? "the same batch again, with a cache, reads one row a request"
# Four beginnings in turn, in two places: each is held for those that follow.
python3 - "$D/in" <<'PY'
import json, random, sys
r = random.Random(7)
common = [[r.randrange(500) for _ in range(120)] for _ in range(4)]
with open(sys.argv[1], 'w') as f:
    for i in range(24):
        f.write(json.dumps({'id': str(i), 'prompt': common[i % 4] + [i] * 8,
                            'max_tokens': 3}) + '\n')
PY
batch plain --trace "$D/trace" && batch shared --sequences 2 &&
    cmp -s "$D/shared" "$D/plain" &&
    [ "$(say prompt_tokens_read)" = $((4 * 120 + 24 * 8)) ]
verdict $? "four beginnings in turn are read once each: $(say prompt_tokens_read)"

# With memory for two places and no more, what has no place waits on the drive.
python3 - "$D/in" <<'PY'
import json, random, sys
r = random.Random(6)
common = [r.randrange(500) for _ in range(300)]
with open(sys.argv[1], 'w') as f:
    for i in range(12):
        f.write(json.dumps({'id': str(i), 'prompt': common + [i] * 8,
                            'max_tokens': 3}) + '\n')
PY
batch plain && [ "$(say prompt_tokens_read)" = $((300 + 12 * 8)) ]
verdict $? "12 requests that begin alike"
small="--sequences 2 --rows 64 -m"
floor=1M # of one place, then of two
for i in 1 2; do
    batch shared $small "$floor"
    floor=$(sed -n 's/.*floor \(is\|of\) \([0-9]*\).*/\2/p' "$D/err")
done
batch shared $small "$floor" && cmp -s "$D/shared" "$D/plain" &&
    [ "$(say prompt_tokens_read)" -gt 1000 ] &&
    batch shared $small "$floor" --prefix-cache "$D/cache4" &&
    cmp -s "$D/shared" "$D/plain" &&
    [ "$(say prompt_tokens_read)" = $((300 + 12 * 8)) ]
verdict $? "no memory to hold their beginning: it goes through the drive"
echo "1..$n"
