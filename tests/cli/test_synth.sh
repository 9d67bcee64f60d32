#!/bin/sh
# Goal    what a person types writes the checkpoint it says, or gets one
#         sentence and the right exit status.
# Method  tiny checkpoints in a temporary folder; a write that is cut short by
#         a file size limit stands for a full disk.
. tests/tap.sh
# works NAME LINES command...: exit 0, nothing on stdout, LINES on stderr
works() {
    name=$1 lines=$2
    shift 2
    out=$("$@" 2> "$D/err") && [ -z "$out" ] &&
        [ "$(wc -l < "$D/err")" -eq "$lines" ]
    s=$?
    [ $s -eq 0 ] || sed 's/^/# /' "$D/err"
    verdict $s "$name"
}
# fails NAME STATUS WORDS command...: exit STATUS, WORDS in the first line
fails() {
    name=$1 status=$2 words=$3
    shift 3
    "$@" > "$D/out" 2> "$D/err"
    s=$?
    [ $s -eq "$status" ] && [ ! -s "$D/out" ] &&
        head -n 1 "$D/err" | grep -qF -- "$words"
    s=$?
    [ $s -eq 0 ] || sed 's/^/# /' "$D/err"
    verdict $s "$name"
}
same() { # name folder folder
    diff -r "$2" "$3" > /dev/null
    verdict $? "$1"
}

works "tiny" 0 "$S" synth "$D/a" --preset tiny
works "the same again" 0 "$S" synth "$D/b" --preset=tiny --seed 0
same "the same seed gives the same bytes" "$D/a" "$D/b"
works "over itself" 0 "$S" synth "$D/b" --preset tiny --seed 1
cmp -s "$D/a/model-00002-of-000014.safetensors" \
    "$D/b/model-00002-of-000014.safetensors"
verdict $((1 - $?)) "another seed gives other bytes"
works "fields" 0 "$S" synth "$D/c" --preset tiny --hidden-size 64 \
    --num-hidden-layers 5 --full-attn-layers 2,5 --head-dim 8 \
    --rms-norm-eps 1e-6 --moe-renormalize false --latent-moe-use-norm false \
    --max-position-embeddings 100
grep -q '"hidden_size": 64,' "$D/c/config.json" &&
    grep -q '"rms_norm_eps": 1e-0*6,' "$D/c/config.json" &&
    grep -q '"moe_renormalize": false' "$D/c/config.json" &&
    tr -d ' \n' < "$D/c/config.json" | grep -q '"kda_layers":\[1,3,4\]'
verdict $? "the fields are in config.json"
[ "$(ls "$D/c" | grep -c '^model-.*-of-000006.safetensors$')" -eq 6 ]
verdict $? "one shard a layer and one more"
grep -c . "$D/c/tiktoken.model" | grep -qx 512
verdict $? "a token for every id below the special ones"
works "a size that is too small says so in one line" 1 \
    "$S" synth "$D/d" --preset tiny --size 100K
works "a size" 0 "$S" synth "$D/d" --preset tiny --size 20M
[ "$(cat "$D"/d/model-*.safetensors | wc -c)" -le 20971520 ] &&
    [ "$(cat "$D"/d/model-*.safetensors | wc -c)" -gt 20000000 ]
verdict $? "is used and kept"
works "echo" 0 "$S" synth "$D/e" --preset tiny --echo 3

works "weights as trained ones are spread" 0 "$S" synth "$D/l" --preset tiny \
    --weights llm
! cmp -s "$D/a/model-00002-of-000014.safetensors" \
    "$D/l/model-00002-of-000014.safetensors"
verdict $? "are others"
works "sparse, with coded weights" 0 "$S" synth "$D/s" --preset tiny --sparse \
    --packed
"$S" verify "$D/s" | grep -q "14 coded files decoded and compared" &&
    ! "$S" verify "$D/s" | grep -q "pack:"
verdict $? "which decode to what the holes are"

fails "no folder" 2 "needs a folder" "$S" synth --preset tiny
fails "coded and not sparse" 1 "sparse" "$S" synth "$D/x" --preset tiny --packed
fails "unknown weights" 2 "--weights" "$S" synth "$D/x" --preset tiny \
    --weights gpt
fails "no preset" 2 "--preset" "$S" synth "$D/x"
fails "unknown preset" 2 "huge" "$S" synth "$D/x" --preset huge
fails "not a number" 2 "--hidden-size" "$S" synth "$D/x" --preset tiny \
    --hidden-size wide
fails "not a list" 2 "--full-attn-layers" "$S" synth "$D/x" --preset tiny \
    --full-attn-layers 4,,8
fails "size and experts" 2 "--size" "$S" synth "$D/x" --preset tiny --size 1G \
    --num-experts 8
fails "a layer that is not there" 1 "full_attn_layers" "$S" synth "$D/x" \
    --preset tiny --full-attn-layers 14
fails "a value that is not supported" 1 "num_expert_group" "$S" synth "$D/x" \
    --preset tiny --num-expert-group 2
fails "no multiple of the group" 1 "moe_intermediate_size" "$S" synth "$D/x" \
    --preset tiny --moe-intermediate-size 100
fails "a vocabulary that is too small" 1 "vocab_size" "$S" synth "$D/x" \
    --preset tiny --vocab-size 511
fails "a cycle that is too long" 1 "echo of 513 ids" "$S" synth "$D/x" --preset tiny \
    --echo 513
[ ! -e "$D/x" ]
verdict $? "nothing is made when nothing is written"
mkdir "$D/mine" && echo keep > "$D/mine/notes"
fails "another's folder" 1 "not empty" "$S" synth "$D/mine" --preset tiny
fails "no folder to write in" 1 "No such file" "$S" synth "$D/no/x" \
    --preset tiny

# The last shard is the largest; it passes the limit.
(
    ulimit -f 1600 # of 512 or 1024 bytes
    exec "$S" synth "$D/k" --preset tiny --vocab-size 16384
) > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "File too large" "$D/err" &&
    [ -e "$D/k/model-00013-of-000014.safetensors" ] &&
    ! ls "$D/k" | grep -q "part\|model-00014\|index"
verdict $? "a file that cannot be whole: nothing is left of it"
works "cut short: again" 0 "$S" synth "$D/k" --preset tiny
same "cut short: nothing is left of it" "$D/a" "$D/k"

# Killed while it writes a shard after the first.
"$S" synth "$D/k2" --preset small > /dev/null 2>&1 &
while [ ! -e "$D/k2/model-00001-of-000010.safetensors" ] && kill -0 $!; do
    :
done 2> /dev/null
kill -9 $! && ! wait $! 2> /dev/null &&
    [ ! -e "$D/k2/model.safetensors.index.json" ] &&
    (cd "$D/k2" && md5sum model-*.safetensors > "$D/whole") &&
    "$S" synth "$D/k2" --preset small > /dev/null &&
    ! ls "$D/k2" | grep -q part && (cd "$D/k2" && md5sum -c --quiet "$D/whole")
verdict $? "killed: what has its name is whole, the rest is made again"
rm -rf "$D/k2"
echo "1..$n"
