#!/bin/sh
# Goal    what people read has figures of one kind: three digits, never 0.000,
#         memory in GiB and bytes in GB, "1 thread".
# Method  the outputs of all commands scanned by figures.py, which is given
#         wrong lines first; the formats of all prints in bin/.
. tests/tap.sh
M=$D/m
"$S" synth "$M" --preset tiny > "$D/synth.txt" 2>&1 || exit 1
"$S" synth "$D/drafter" --preset drafter --like "$M" >> "$D/synth.txt" 2>&1
check() {
    python3 tests/figures/figures.py "$@"
}
s=0
for line in 'read 0.000 GB' 'took 1.2345 s' '0.00 s a token' '1 threads' \
    'at 12.34 GB/s' '3.00 GB of memory' 'overlap 0.0; x'; do
    echo "$line" > "$D/bad"
    check "$D/bad" > "$D/out" && echo "# taken: $line" && s=1
done
echo '1 row, 0.0123 GB, 1564 MB, 1.23e-05 s; version 1.2.34, 11 threads' \
    > "$D/good"
check "$D/good" || s=1
verdict $s "the scanner knows what is wrong"

# told NAME command...: the command succeeds, and its texts have good figures
told() {
    name=$1
    shift
    "$S" "$@" > "$D/$name.out" 2> "$D/$name.err" < /dev/null
    s=$?
    [ $s = 0 ] || sed 's/^/# /' "$D/$name.err"
    [ -s "$D/$name.out" ] || [ -s "$D/$name.err" ] || s=1
    check "$D/$name.out" "$D/$name.err" || s=1
    verdict $s "$name"
}
printf '{"custom_id": "%d", "prompt": [%d, 5]}\n' 1 3 2 4 > "$D/in"
check "$D/synth.txt"
verdict $? "synth"
for t in 1 2; do
    told run$t run "$M" --ids 1,2,3 -n 5 -t $t --ignore-eos --report "$D/r$t" \
        --trace "$D/trace$t" --timeline "$D/time$t"
done
told run-one run "$M" --ids 1 -n 1 -t 1 --ignore-eos
told run-none run "$M" --ids 1 -n 0 -m 40M
told run-slow run "$M" --ids 1,2 -n 3 -m 32M -c 64 --simulate-drive 0.01 \
    --ignore-eos
told run-drafter run "$M" --ids 1,2,1,2,1 -n 9 --drafter "$D/drafter" \
    --ignore-eos
told batch batch "$M" -i "$D/in" -o "$D/answers" -n 3 --progress 1
sed 1q "$D/in" > "$D/one"
told batch-one batch "$M" -i "$D/one" -o "$D/answer" -n 1
grep -qE 'toFixed\([1-9]|GB.* of .*(memory|budget)' bin/serve/page/page.js
[ $? -eq 1 ]
verdict $? "the figures of the server's page"
told batch-check batch "$M" --check "$D/in" -n 3
told plan plan "$M"
told plan-one plan "$M" -t 1 --rows 1 -m 2G --batch --nodes 2
told plan-drives plan "$M" -m 40M --simulate-drive 3 --simulate-drive 3,80
told plan-drafter plan "$M" --drafter "$D/drafter"
"$S" synth "$D/k3" --preset k3 --sparse > "$D/out" 2>&1
told plan-k3 plan "$D/k3" -m 32G --batch
told doctor doctor "$M"
told doctor-drafter doctor "$D/drafter"
told verify verify "$M"
told pack pack "$M"
told plan-packed plan "$M"
told verify-packed verify "$M" --again
told spread spread "$M" --to "$D/p0" --to "$D/p1"
told doctor-parts doctor "$M" --parts "$D/p0" --parts "$D/p1"
told replay replay "$D/trace1"
told replay-timed replay "$D/trace1" --simulate-drive 3 --policy dhd,lru \
    --prefetch none,gate --html "$D/replay.html"
told replay-accepted replay "$D/trace1" --acceptance .8
told compare compare "$D/r1" "$D/r2"
told profile profile --report "$D/r1" --trace "$D/trace1" --timeline "$D/time1" \
    -o "$D/profile.html"
printf '/stats\nhello\n/stats\n' > "$D/said"
"$S" chat "$M" -n 4 -c 2048 < "$D/said" > "$D/chat.txt" 2>&1
check "$D/chat.txt"
verdict $? "chat"
check "$D/profile.html" "$D/replay.html"
verdict $? "pages"

# Pages place things by fractions, and the server speaks JSON.
grep -rnE '%[-+ 0]*[0-9*]*\.[0-9*]+[fFeEgG]' bin --include='*.c' |
    grep -vE '^bin/(html/(chart|page)|serve/[a-z_]*)\.c|%\.0f' > "$D/out"
[ ! -s "$D/out" ] || sed 's/^/# /' "$D/out"
[ ! -s "$D/out" ]
verdict $? "numbers are printed by model/ckpt/figure.h"
echo "1..$n"
