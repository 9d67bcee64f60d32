#!/bin/sh
# Goal    no output takes the place of anything: names made from other names,
#         links, foreign files, pages over what they show; and a run that cannot
#         start leaves the files of the last one.
# Method  each is set up on a small random checkpoint; checksums before and
#         after, and what the sentence names.
. tests/tap.sh
M=$D/m
"$S" synth "$M" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 > "$D/out" 2> "$D/err" || exit 1
line='{"custom_id": "1", "max_tokens": 2, "prompt": [3]}'
echo "$line" > "$D/in"
RUN="run $M -n 2 -c 64 --ids 3,4"
# spared FILE WORDS command...: exit 1, a sentence with WORDS, FILE as it was
spared() {
    file=$1 words=$2
    shift 2
    was=$(cksum < "$file")
    "$@" > "$D/out" 2> "$D/err" < /dev/null
    [ $? -eq 1 ] && grep -q -- "^sluice: .*$words" "$D/err" &&
        [ "$(cksum < "$file")" = "$was" ]
}
"$S" $RUN --report "$D/r" --trace "$D/t" --timeline "$D/l" --logits "$D/g" \
    > "$D/out" 2> "$D/err" || exit 1

# pages
cp "$M/config.json" "$D/config"
spared "$M/config.json" "is a file of the model" \
    "$S" profile "$M" --ids 3 -n 1 -o "$M/config.json"
verdict $? "profile -o MODEL/config.json"
cp "$D/config" "$M/config.json"
spared "$M/config.json" "is a file of a model" \
    "$S" profile --report "$D/r" -o "$M/config.json"
verdict $? "the same without a run"
cp "$D/config" "$M/config.json"
spared "$M/config.json" "is a file of a model" \
    "$S" replay "$D/t" --html "$M/config.json"
verdict $? "replay --html MODEL/config.json"
cp "$D/config" "$M/config.json"
cp "$D/t" "$D/pin"
spared "$D/pin" "same file" "$S" replay "$D/t" --policy static-pin \
    --pin "$D/pin" --html "$D/pin"
verdict $? "replay --pin X --html X"
cp "$D/r" "$D/r1"
spared "$D/r1" "same file" "$S" replay "$D/t" --simulate-drive 1 -m 1G \
    --compute "$D/r1" --html "$D/r1"
verdict $? "replay --compute R --html R"
echo 'a prompt' > "$D/prompt"
spared "$D/prompt" "same file" "$S" profile "$M" --file "$D/prompt" -n 1 \
    -o "$D/prompt"
verdict $? "profile --file X -o X"
"$S" $RUN --report "$M/model-00099-of-00099.safetensors" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ ! -e "$M/model-00099-of-00099.safetensors" ]
verdict $? "a report is no shard that is missing"
rm -f "$M/model-00099-of-00099.safetensors"

# derived names
mkdir "$D/b"
cp "$D/in" "$D/b/P.1"
spared "$D/b/P.1" "same file" "$S" batch "$M" -i "$D/b/P.1" -o "$D/b/o" \
    --logits "$D/b/P"
verdict $? "batch --logits P with an input P.1"
rm -f "$D/b/"*
cp "$D/in" "$D/b/in"
ln "$D/b/in" "$D/b/P.7"
spared "$D/b/in" "same file" "$S" batch "$M" -i "$D/b/in" -o "$D/b/o" \
    --logits "$D/b/P"
verdict $? "and one that P.7 is another name of"
rm -f "$D/b/"*
for end in held partial; do
    cp "$D/in" "$D/b/o.$end"
    spared "$D/b/o.$end" "same file" "$S" batch "$M" -i "$D/b/o.$end" \
        -o "$D/b/o" --keep-order
    verdict $? "an input called OUT.$end"
    rm -f "$D/b/"*
    cp "$D/in" "$D/b/in"
    "$S" batch "$M" -i "$D/b/in" -o "$D/b/o" --report "$D/b/o.$end" \
        > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q "same file" "$D/err" && [ ! -e "$D/b/o" ]
    verdict $? "a report called OUT.$end"
    rm -f "$D/b/"*
done

# foreign files and links of a derived name
cp "$D/in" "$D/b/in"
echo 'my notes' > "$D/b/o.partial"
: > "$D/b/o"
"$S" batch "$M" -i "$D/b/in" -o "$D/b/o" > "$D/out" 2> "$D/err"
[ $? -eq 0 ] && [ "$(cat "$D/b/o.partial")" = 'my notes' ] &&
    grep -q "o.partial: is not a file of sluice batch" "$D/err"
verdict $? "a foreign OUT.partial stays"
rm -f "$D/b/o"*
echo 'my notes' > "$D/b/notes"
ln -s notes "$D/b/o.held"
"$S" batch "$M" -i "$D/b/in" -o "$D/b/o" --keep-order > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ "$(cat "$D/b/notes")" = 'my notes' ] && [ -L "$D/b/o.held" ]
verdict $? "a link called OUT.held is not followed"
rm -f "$D/b/o"*
: > "$D/b/empty"
ln -s empty "$D/b/o.held"
"$S" batch "$M" -i "$D/b/in" -o "$D/b/o" --keep-order > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ -L "$D/b/o.held" ]
verdict $? "nor when what it leads to is empty"
rm -f "$D/b/o"*
ln -s notes "$D/b/P.1"
"$S" batch "$M" -i "$D/b/in" -o "$D/b/o" --logits "$D/b/P" \
    > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ "$(cat "$D/b/notes")" = 'my notes' ] && [ -L "$D/b/P.1" ]
verdict $? "a link called PREFIX.1 is not followed"
rm -f "$D/b/o"* "$D/b/P"*
printf '\0\0my data' > "$D/b/o"
spared "$D/b/o" "not an answer of sluice batch" \
    "$S" batch "$M" -i "$D/b/in" -o "$D/b/o"
verdict $? "an output that begins with NUL is not cut"
head -c 4096 /dev/zero > "$D/b/o"
spared "$D/b/o" "not an answer of sluice batch" \
    "$S" batch "$M" -i "$D/b/in" -o "$D/b/o"
verdict $? "nor one of NULs alone"
rm -f "$D/b/o"*
"$S" batch "$M" -i "$D/b/in" -o "$D/b/o" 2> "$D/err"
printf '\0\0my data' >> "$D/b/o"
spared "$D/b/o" "not an answer of sluice batch" \
    "$S" batch "$M" -i "$D/b/in" -o "$D/b/o"
verdict $? "nor data behind NULs, behind answers"

# links
ln -s "$D/gone" "$D/dangling"
"$S" $RUN --report "$D/dangling" > "$D/out" 2> "$D/err"
[ $? -eq 0 ] && [ -L "$D/dangling" ] && grep -q '"prefill"' "$D/gone"
verdict $? "a link that leads nowhere yet is followed"
rm -f "$D/gone"
"$S" run "$D/none" --ids 3 --report "$D/dangling" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ -L "$D/dangling" ] && [ ! -e "$D/gone" ]
verdict $? "and left alone when there is no run"

# runs that cannot start
first=$(basename "$M"/model-00001-*)
for option in report trace timeline logits; do
    case $option in
    report) f=$D/r ;; trace) f=$D/t ;; timeline) f=$D/l ;; *) f=$D/g ;;
    esac
    spared "$f" "floor" "$S" $RUN --$option "$f" -m 1M
    verdict $? "a run that has no memory spares the last --$option"
    mv "$M"/model-00001-* "$D/shard"
    spared "$f" "." "$S" $RUN --$option "$f"
    verdict $? "and one without a shard"
    mv "$D/shard" "$M/$first"
done
mkdir "$D/one" && cp "$D/in" "$D/one/in"
"$S" batch "$M" -i "$D/one/in" -o "$D/one/o" --logits "$D/one/P" \
    > "$D/out" 2> "$D/err" || cat "$D/err"
rm "$D/one/o"
spared "$D/one/P.1" "budget" "$S" batch "$M" -i "$D/one/in" -o "$D/one/o" \
    --logits "$D/one/P" -m 1M
verdict $? "batch spares the last PREFIX.1"
[ -z "$(find "$D" -name '.*sluice*')" ]
verdict $? "no file is left aside"

# outputs of other commands, and folders that are kept
was=$(cat "$M/config.json")
printf '/save %s\n' "$M/config.json" |
    "$S" chat "$M" -c 64 > "$D/out" 2> "$D/err"
grep -q "/save .*config.json is a file of the model" "$D/err" &&
    [ "$(cat "$M/config.json")" = "$was" ]
verdict $? "a conversation over a file of the model"
"$S" serve "$M" --port 0 --access-log "$M/config.json" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "is a file of the model" "$D/err" &&
    [ "$(cat "$M/config.json")" = "$was" ]
verdict $? "an access log"
echo 'sk-1' > "$D/keys"
"$S" serve "$M" --port 0 --api-key-file "$D/keys" --access-log "$D/keys" \
    > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "same file" "$D/err" && [ "$(cat "$D/keys")" = 'sk-1' ]
verdict $? "an access log in the file of keys"
mkdir -p "$D/site/files" && echo mine > "$D/site/files/page.new"
"$S" serve "$M" --port 0 --data "$D/site" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "$D/site: not empty, and not made by" "$D/err" &&
    [ "$(cat "$D/site/files/page.new")" = mine ] && [ ! -e "$D/site/lock" ]
verdict $? "--data in a folder of somebody else"
many=$(seq -s, 3 42)
mkdir "$D/cache" && echo 'my index' > "$D/cache/index"
for _ in 1 2; do
    "$S" run "$M" --ids "$many" -n 20 -c 64 --prefix-cache "$D/cache" \
        > "$D/out" 2> "$D/err"
done
[ $? -eq 0 ] && [ "$(cat "$D/cache/index")" = 'my index' ] &&
    [ "$(ls "$D/cache" | wc -l)" -gt 2 ]
verdict $? "a prefix cache beside somebody's index"
rm "$D/cache/index" && ln -s ../keys "$D/cache/index"
"$S" run "$M" --ids "$many,9" -n 9 -c 64 --prefix-cache "$D/cache" \
    > "$D/out" 2> "$D/err"
[ $? -eq 0 ] && [ "$(cat "$D/keys")" = 'sk-1' ] && [ -L "$D/cache/index" ]
verdict $? "and beside a link"
mkdir "$D/to" && first=$(basename "$M"/model-00001-* .safetensors)
echo 'my pack' > "$D/to/$first.pack"
"$S" pack "$M" --to "$D/to" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "$first.pack: is not a file of sluice pack" "$D/err" &&
    [ "$(cat "$D/to/$first.pack")" = 'my pack' ]
verdict $? "coded weights over another file"
long=$(printf '%0250d' 0)
"$S" $RUN --report "$D/$long" --trace "$D/1$long" > "$D/out" 2> "$D/err" &&
    "$S" $RUN --report "$D/$long" --trace "$D/1$long" > "$D/out" 2> "$D/err" &&
    grep -q '"prefill"' "$D/$long" && [ -s "$D/1$long" ]
verdict $? "names as long as names may be"

echo 'my data' > "$D/b/data"
spared "$D/b/data" "data: is not a saved sequence, and is left" \
    "$S" $RUN --state "$D/b/data"
verdict $? "a state over another file"
mkfifo "$D/b/pipe"
timeout 60 "$S" $RUN --state "$D/b/pipe" > "$D/out" 2> "$D/err" < /dev/null
[ $? -eq 1 ] && grep -q "pipe: is not a saved sequence" "$D/err"
verdict $? "nor over a pipe, which would wait"
rm -f "$D/b/o"*
mkfifo "$D/b/o.held"
for order in --keep-order "-c 64"; do
    timeout 60 "$S" batch "$M" -i "$D/in" -o "$D/b/o" $order > "$D/out" \
        2> "$D/err" < /dev/null
    [ $? -eq 1 ] && grep -q "o.held: File exists" "$D/err"
    verdict $? "a pipe called OUT.held ($order)"
done
cp "$S" "$D/program"
spared "$D/program" "is this program" "$D/program" $RUN --report "$D/program"
verdict $? "a report over the program"

# files of a moment
mkdir "$D/tmp"
TMPDIR=$D/no/such "$S" profile "$M" --ids 3 -n 1 -o "$D/page" \
    > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "$D/no/such" "$D/err"
verdict $? "TMPDIR is followed"
TMPDIR=$D/tmp "$S" profile "$M" --ids 3 -n 1 -c 64 -o "$D/page" \
    > "$D/out" 2> "$D/err" && [ -z "$(ls -A "$D/tmp")" ] && [ -s "$D/page" ]
verdict $? "and empty afterwards"

# what stands behind the standard streams
cp "$D/in" "$D/b/in"
was=$(cksum < "$D/b/in")
"$S" batch "$M" -i - -o "$D/b/in" < "$D/b/in" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ "$(cksum < "$D/b/in")" = "$was" ]
verdict $? "answers over what stdin reads"
"$S" $RUN --report "$D/same" > "$D/same" 2> "$D/err"
[ $? -eq 1 ] && grep -q "stdout and --report are the same" "$D/err"
verdict $? "a report over what stdout writes"
"$S" $RUN > "$D/same" 2>&1
verdict $? "stdout and stderr may be one"
echo "1..$n"
