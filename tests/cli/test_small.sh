#!/bin/sh
# Goal    small limits and odd folders end in a result or one sentence.
# Method  a stack of 128 KiB and of 64; 14 open files; two synth in one folder;
#         ends and ids as other programs write them.
. tests/tap.sh
M=$D/m
"$S" synth "$M" --preset tiny > /dev/null 2>&1 || exit 1
"$S" run "$M" --ids 1,2 -n 3 --ignore-eos > "$D/want" 2> /dev/null
if grep -q fsanitize "${BUILD:-build}/flags"; then
    skip "small stacks" "a sanitizer needs its own"
else
    for kib in 64 128; do
        (ulimit -s $kib && exec "$S" run "$M" --ids 1,2 -n 3 --ignore-eos -t 3) \
            > "$D/out" 2> "$D/err" && cmp -s "$D/out" "$D/want"
        verdict $? "run with a stack of $kib KiB"
        for command in "plan $M" "doctor $M" "verify $M --again" \
            "tokenize $M -p hello" "synth $D/other --preset tiny"; do
            (ulimit -s $kib && exec "$S" $command) > "$D/out" 2> "$D/err"
            verdict $? "${command%% *} with a stack of $kib KiB"
        done
    done
fi
(ulimit -n 14 && exec "$S" run "$M" --ids 1 -n 1) > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'Too many open files' "$D/err" &&
    grep -q 'ulimit -n' "$D/err"
verdict $? "run with 14 open files: one sentence and what to type"
(ulimit -n 14 && exec "$S" doctor "$M") > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'ulimit -n' "$D/out" && ! grep -q smartctl "$D/out"
verdict $? "doctor with 14 open files does not blame the drive"
rm -f "$M/.sluice-verified"
(ulimit -n 14 && exec "$S" verify "$M") > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'Too many open files' "$D/err" "$D/out"
verdict $? "verify with 14 open files: one sentence"

"$S" synth "$D/two" --preset small --seed 1 > "$D/out1" 2>&1 &
first=$!
s=0 busy=0
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -f "$D/two/config.json" ] && break
    sleep 0.05
done
"$S" synth "$D/two" --preset small --seed 2 > "$D/out" 2> "$D/err" || busy=1
wait $first || s=1
if [ $busy = 1 ]; then
    grep -q 'another sluice synth is writing to it' "$D/err" || s=1
fi
"$S" verify "$D/two" > "$D/out" 2>> "$D/err" || s=1
verdict $s "two synth in one folder (second refused: $busy)"

for value in '[1,2]' '[9]' null; do
    "$S" synth "$M" --preset tiny > /dev/null 2>&1
    for place in eos_token_id text_config.eos_token_id; do
        python3 tests/cli/ckpt_edit.py "$M" config $place "$value"
    done
    python3 tests/cli/ckpt_edit.py "$M" config pad_token_id null
    python3 tests/cli/ckpt_edit.py "$M" config text_config.pad_token_id null
    "$S" run "$M" --ids 1,2 -n 3 --ignore-eos > "$D/out" 2> "$D/err" &&
        cmp -s "$D/out" "$D/want"
    verdict $? "eos_token_id $value"
done
second=$(cut -d, -f2 "$D/want")
for place in eos_token_id text_config.eos_token_id; do
    python3 tests/cli/ckpt_edit.py "$M" config $place "[767,$second]"
done
"$S" run "$M" --ids 1,2 -n 3 > "$D/out" 2> "$D/err"
[ "$(cat "$D/out")" = "$(cut -d, -f1 "$D/want")" ]
verdict $? "the second id of a list ends a run"
echo 1..$n
