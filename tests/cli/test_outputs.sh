#!/bin/sh
# Goal    no command overwrites what it reads: a model, a prompt, a trace; none
#         writes two things into one file; what cannot be written ends it before
#         it begins, and what is full afterwards is said.
# Method  each option that names an output is given files of the model, by name
#         and by links, the input, and the file of another output; checksums
#         before and after.
. tests/tap.sh
M=$D/m
# refused WORDS command...: exit 1, one sentence with them, nothing on stdout
refused() {
    words=$1
    shift
    "$@" > "$D/out" 2> "$D/err" < /dev/null
    [ $? -eq 1 ] && [ ! -s "$D/out" ] && [ "$(wc -l < "$D/err")" -le 2 ] &&
        grep -q -- "^sluice: .*$words" "$D/err"
}
"$S" synth "$M" --preset tiny > "$D/out" 2> "$D/err" || exit 1
echo '{"custom_id": "1", "prompt": [3]}' > "$D/in"
printf 'Hello' > "$D/prompt"
ln -s "$M/model-00002-of-000014.safetensors" "$D/link"
ln "$M/config.json" "$D/hard"
sums() {
    cat "$M"/* "$D/in" "$D/prompt" | cksum
}
before=$(sums)
RUN="run $M -n 1 --file $D/prompt"
BATCH="batch $M -n 1 -i $D/in -o $D/answers"

for option in report trace timeline logits; do
    s=0
    for file in "$M/config.json" "$M/tiktoken.model" "$D/link" "$D/hard" \
        "$M/model-00001-of-000014.safetensors"; do
        refused "--$option $file is a file of the model" \
            "$S" $RUN --$option "$file" || s=1
    done
    verdict $s "--$option spares the model"
    refused "--file and --$option are the same" "$S" $RUN --$option "$D/prompt"
    verdict $? "--$option spares the prompt"
    s=0
    for other in report trace timeline logits; do
        [ $other = $option ] || refused "are the same file" "$S" $RUN \
            --$option "$D/new" --$other "$D/../${D##*/}/new" || s=1
        [ ! -e "$D/new" ] || s=1
    done
    verdict $s "--$option shares no file"
    [ $option = logits ] && continue
    refused "are the same file" "$S" $BATCH --$option "$D/in"
    verdict $? "batch --$option spares the requests"
    refused "are the same file" "$S" $BATCH --$option "$D/answers"
    verdict $? "and the answers"
done
refused "is a file of the model" "$S" batch "$M" -i "$D/in" -o "$D/link"
verdict $? "answers spare the model"
refused "are the same file" "$S" batch "$M" -i "$D/in" -o "$D/in"
verdict $? "and the requests"
[ "$(sums)" = "$before" ]
verdict $? "nothing was touched"

"$S" $RUN --report /dev/null --trace /dev/null --timeline /dev/null \
    > "$D/out" 2> "$D/err"
verdict $? "a device may be given twice"
for option in report trace timeline logits; do
    "$S" $RUN -c 64 --ignore-eos --$option /dev/full > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q '^sluice: /dev/full.*No space left' "$D/err"
    verdict $? "--$option on a full disk is a failure"
done

"$S" $RUN --report "$D/r" --trace "$D/t" > "$D/out" 2> "$D/err" || exit 1
cp "$D/r" "$D/r0"
cp "$D/t" "$D/t0"
refused "are the same file" "$S" profile --report "$D/r" -o "$D/r" &&
    refused "are the same file" "$S" replay "$D/t" --html "$D/t" &&
    cmp -s "$D/r" "$D/r0" && cmp -s "$D/t" "$D/t0"
verdict $? "a page is not written over what it shows"
refused "the page could not be written: No such" "$S" profile "$M" -p Hello \
    -o "$D/no/page" &&
    refused "the page could not be written: No such" "$S" replay "$D/t" \
        --html "$D/no/page"
verdict $? "a page that cannot be written: said before the work"
echo "1..$n"
