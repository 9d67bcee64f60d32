#!/bin/sh
# Goal    what a person reads is whole: the text of a run on a terminal, help
#         within 80 columns, figures that are numbers, hints that can be typed.
# Method  every --help measured; a run on a pseudo-terminal, whose line-erasing
#         sequences must not follow the text; runs with nothing to do, with a
#         report that cannot be written, with names that are not known.
. tests/tap.sh
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1 || exit 1

s=0
for command in run batch chat plan doctor verify tokenize synth profile replay; do
    "$S" $command --help > "$D/help" || s=1
    grep -nE '^.{80}| $' "$D/help" | sed "s/^/# $command: /"
    grep -qE '^.{80}| $' "$D/help" && s=1
    "$S" help $command | cmp -s - "$D/help" || s=1
done
verdict $s "help fits 80 columns, and help COMMAND is the same"
s=0
for command in run batch plan replay; do
    "$S" $command --help > "$D/help"
    grep -q -- '--simulate-drive GBPS' "$D/help" || s=1
    grep -q -- '--device' "$D/help" && s=1
done
"$S" plan "$D/m" -m 2G --simulate-drive 3,70 --json > "$D/new" 2> "$D/err" &&
    "$S" plan "$D/m" -m 2G --device 3,70 --json > "$D/old" &&
    cmp -s "$D/new" "$D/old" && grep -q '"gbps": 3' "$D/new" || s=1
verdict $s "--device is still taken for --simulate-drive, and not shown"

# Every policy and prefetcher that a command knows has a line in its help.
s=0
for command in run batch plan replay; do
    "$S" $command --help | sed -n '/^Policies/,$p' > "$D/help"
    for name in dhd lru lru-layer ema lfu lru2 s3fifo fifo static-pin none \
        auto gate path table ema prev none; do
        grep -qE "^  $name(=TRACE)? +[a-zA-Z]" "$D/help" || s=1
    done
    n_replay=$(grep -cE '^  (min|perfect) ' "$D/help")
    [ $command = replay ] && want=2 || want=0
    [ "$n_replay" -eq $want ] || s=1
done
grep -q 'dhd  *distance-discounted history' "$D/help" || s=1
verdict $s "help lists the policies and prefetchers, each with a sentence"
rm -f "$D/new" "$D/old"

"$S" run "$D/m" -p Hello --polcy lru > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && grep -qx 'sluice: unknown option --polcy' "$D/err" &&
    $(tail -n 1 "$D/err" | sed 's/ shows the options$//') > "$D/out" &&
    grep -q '^usage: sluice run' "$D/out"
verdict $? "the hint after a wrong option can be typed"

s=0
while read -r words; do
    "$S" $words > "$D/out" 2> "$D/err" < /dev/null
    [ $? -eq 2 ] && [ ! -s "$D/out" ] && [ "$(wc -l < "$D/err")" -eq 3 ] &&
        sed -n 1p "$D/err" | grep -q '^sluice: extra is one word too many$' &&
        sed -n 2p "$D/err" | grep -q "^usage: sluice ${words%% *} " && continue
    s=1
    sed "s/^/# $words: /" "$D/err"
done << END
run $D/m extra -p Hello
run $D/m -p Hello -n 1 extra
batch $D/m extra -i $D/in -o $D/answers
batch $D/m -i $D/in -o $D/answers -- extra
plan $D/m extra
doctor $D/m extra
verify $D/m extra
tokenize $D/m -p Hello extra
synth $D/new extra --preset tiny
END
[ ! -e "$D/new" ] && [ ! -e "$D/answers" ] || s=1
verdict $s "a word too many: a sentence, the usage, exit 2"
s=0
for command in run batch plan doctor verify tokenize synth replay; do
    "$S" $command "" -i "$D/in" -o "$D/answers" > "$D/out" 2> "$D/err"
    [ $? -eq 2 ] && grep -qx 'sluice: a word is empty' "$D/err" || s=1
done
"$S" help run extra > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && [ ! -s "$D/out" ] || s=1
"$S" profile --report > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && grep -qx 'sluice: --report needs a value' "$D/err" || s=1
verdict $s "an empty word, a value that is missing: exit 2"

"$S" run "$D/m" -p Hello --policy no > "$D/out" 2> "$D/err"
s=$?
"$S" run "$D/m" -p Hello --prefetch no > "$D/out" 2>> "$D/err"
[ $s$? = 22 ] && grep -q 'policy is one of dhd, lru,.* static-pin=TRACE' \
    "$D/err" && grep -q 'prefetch is auto,.* path' "$D/err" &&
    ! grep -q 'min\|perfect' "$D/err"
verdict $? "unknown policies and prefetchers: the sentence names the known"

"$S" run "$D/m" -p Hello -n 0 > "$D/out" 2> "$D/err" && [ ! -s "$D/out" ] &&
    grep -q 'decode 0 tokens' "$D/err" && ! grep -q nan "$D/err"
verdict $? "no new tokens: no figure that is none"
"$S" run "$D/m" -p Hello -n 0 --logits "$D/l0" > "$D/out" 2>&1 &&
    "$S" run "$D/m" -p Hello -n 1 --logits "$D/l1" > "$D/out" 2>&1 &&
    [ -s "$D/l0" ] && cmp -s "$D/l0" "$D/l1"
verdict $? "and yet the logits of the prompt"

mkdir "$D/empty"
echo '{"custom_id": "1", "prompt": "Hello"}' > "$D/in"
s=0
for command in "run -p Hello" "batch -i $D/in -o $D/answers" plan tokenize; do
    "$S" ${command%% *} "$D/empty" $(expr "$command " : '[a-z]* \(.*\)') \
        > "$D/out" 2> "$D/err" < /dev/null
    [ $? -eq 1 ] && [ ! -s "$D/out" ] &&
        grep -q "^sluice: $D/empty/.*: No such file or directory$" "$D/err" &&
        grep -q "^hint: .*sluice doctor '$D/empty' says" "$D/err" || s=1
done
"$S" run "$D/m" -f "$D/none" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && ! grep -q doctor "$D/err" || s=1
verdict $s "a folder that lacks files is sent to the doctor, another file not"

"$S" run "$D/m" -p Hello -n 2 --report "$D/no/report" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ ! -s "$D/out" ] && [ "$(wc -l < "$D/err")" -eq 1 ] &&
    grep -q "no/report: the report could not be written: No such" "$D/err"
verdict $? "a report that cannot be written ends the run before it begins"
"$S" run "$D/m" -p Hello -n 2 --report "$D/r" -m 1M > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ ! -e "$D/r" ]
verdict $? "a run that fails leaves no empty report"

if command -v script > /dev/null; then
    "$S" run "$D/m" -p Hello -n 40 --ignore-eos 2> "$D/err" > "$D/text"
    SLOW="-p Hello -n 40 --ignore-eos --simulate-drive 0.01"
    script -qec "$S run $D/m $SLOW" /dev/null < /dev/null 2>&1 | tr -d '\r' > "$D/tty"
    python3 - "$D/tty" "$D/text" << 'PY'
import sys
shown, text = (open(p, "rb").read() for p in sys.argv[1:])
# What is left of each line once the terminal has obeyed "erase the line".
left = b"\n".join(l.split(b"\x1b[K")[-1] for l in shown.split(b"\n"))
if b"\x1b[K" not in shown:
    sys.exit("# no progress line was shown")
if text.strip() not in left:
    sys.exit("# the text was wiped out: %r" % left[:300])
PY
    verdict $? "a terminal keeps the text beside the progress line"
else
    n=$((n + 1))
    echo "ok $n - a terminal keeps the text beside the progress line # SKIP no script"
fi
echo "1..$n"
