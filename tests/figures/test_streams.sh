#!/bin/sh
# Goal    "-" is stdin or stdout where an option says so, and elsewhere one
#         sentence, in every command; nothing is written to a file called "-".
#         A pipe is read, or the sentence says that it must be a file.
# Method  every option that takes a path, as the help of all commands names
#         them, so that a new one is tried too.
. tests/tap.sh
HERE=$PWD
case $S in /*) ;; *) S=$HERE/$S ;; esac
cd "$D" || exit 1
"$S" synth m --preset tiny > out 2> err || exit 1
"$S" run m --ids 1,2,3 -n 4 --ignore-eos --report r --trace t --timeline l \
    > want 2> err || exit 1
echo '{"custom_id": "1", "prompt": [1, 2]}' > in
refused() { # command...
    "$S" "$@" > out 2> err < /dev/null
    [ $? -eq 2 ] && [ ! -s out ] && [ ! -e ./- ] &&
        sed -n 1p err | grep -q '^sluice: .*- is no file here'
}
all=0
for command in run chat batch serve plan doctor verify pack spread tokenize \
    synth profile replay; do
    s=0 tried=0
    "$S" $command --help | grep -oE -- '--[a-z-]+ [^ ]*(FILE|DIR|PATH|TRACE|REPORT|MODEL)[^ ]*' \
        > options
    # of a list of choices, DIR is one
    while read -r option metavar; do
        case $metavar in *'|-') continue ;; esac
        tried=$((tried + 1))
        refused $command m $option - && refused $command m $option=- && continue
        echo "# $command $option - is taken"
        s=1
    done < options
    all=$((all + tried))
    verdict $s "$command: $tried options refuse it"
done
[ $all -gt 60 ]
verdict $? "$all options were tried"
s=0
for words in "run -" "replay -" "compare - r" "doctor -" "verify -" "plan -" \
    "run m --ids 1 --policy static-pin=-"; do
    refused $words || s=1
done
refused profile --report r -o - || s=1
verdict $s "nor is it a word"

[ "$(for c in run batch serve tokenize; do "$S" $c --help; done |
    grep -cE '(FILE|jsonl)\|-')" -eq 6 ]
verdict $? "six options have streams"
printf 'Hello' | "$S" run m -f - -n 2 > out 2> err &&
    "$S" run m -p Hello -n 2 2> err | cmp -s - out
verdict $? "run --file"
printf 'Hello' | "$S" tokenize m -f - > out 2> err &&
    "$S" tokenize m -p Hello | cmp -s - out
verdict $? "tokenize --file"
"$S" batch m -i - -o - -n 2 < in > out 2> err && grep -q '"custom_id": *"1"' out
verdict $? "batch --input and --output"
"$S" batch m --check - < in > out 2> err && grep -q '^1 line: 0 refused' out
verdict $? "batch --check"
[ ! -e ./- ]
verdict $? "no file is called -"

needs_file() { # command...: a sentence about /dev/stdin, which is a pipe
    cat t | "$S" "$@" > out 2> err
    [ $? -eq 1 ] && [ "$(wc -l < err)" -eq 1 ] &&
        grep -qE 'a (trace|timeline) .*must be a file' err
}
s=0
needs_file replay /dev/stdin || s=1
needs_file replay /dev/stdin --repair --simulate-drive 1 || s=1
needs_file replay /dev/stdin --acceptance .5 || s=1
needs_file replay t --policy static-pin --pin /dev/stdin || s=1
needs_file run m --ids 1 -n 1 --policy static-pin=/dev/stdin || s=1
needs_file profile --report r --trace /dev/stdin || s=1
needs_file profile --report r --timeline /dev/stdin || s=1
[ ! -e profile.html ] || s=1
mkfifo fifo && needs_file replay fifo || s=1
verdict $s "traces and timelines in a pipe: a sentence"
cat r | "$S" compare /dev/stdin r > out 2> err &&
    cat r | "$S" profile --report /dev/stdin -o p1 2> err && [ -s p1 ]
verdict $? "reports are read from pipes"
"$S" profile --report r --trace r -o p2 > out 2> err
[ $? -eq 1 ] && [ ! -e p2 ] && grep -q 'r: not a usable routing trace' err
verdict $? "a trace that is none: profile says so"

# What was named twice is one row.
"$S" replay t --policy dhd,lru --prefetch none --frames 5,7 > once 2> err &&
    "$S" replay t t --policy dhd,lru,dhd --prefetch none,none --frames 5,7,5 \
        > out 2> err && cmp -s once out
verdict $? "replay: no row twice"
"$S" replay t --simulate-drive 1 --policy dhd,lru -m 1G,2G > once 2> err &&
    "$S" replay t t --simulate-drive 1 --policy dhd,lru,dhd \
        -m 1G,2048M,1024M,2G --prefetch none,none > out 2> err &&
    cmp -s once out
verdict $? "replay with a drive: no row twice"
"$S" synth few --preset tiny --num-experts 4 --num-experts-per-token 2 \
    > out 2> err && "$S" run few --ids 1,2 -n 2 --ignore-eos --trace ft \
    > out 2> err && "$S" replay ft --policy lru > out 2> err &&
    [ -z "$(grep '^lru ' out | sort | uniq -d)" ]
verdict $? "nor by default"
"$S" replay t --simulate-drive 1 --policy min,dhd > out 2> err &&
    grep -q '^sluice: min knows the future and has no time' err &&
    "$S" replay t --simulate-drive 1 --policy dhd > once 2> err && [ ! -s err ] &&
    cmp -s once out
verdict $? "min with a drive: said, not dropped"
"$S" replay t --simulate-drive 1 --policy min > out 2> err
[ $? -eq 2 ] && grep -q 'min knows the future' err
verdict $? "min alone with a drive: a sentence"
echo "1..$n"
