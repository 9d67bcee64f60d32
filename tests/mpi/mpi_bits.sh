#!/bin/sh
# Goal    several processes that share a model give the bits of one, each with
#         its share of the reads.
# Method  the tiny model, whose heads and rows do not divide evenly: `run
#         --logits` and `batch` over NP processes, the trunk streamed and
#         resident, with drafts, sampling, prompts that begin alike and unequal
#         shares; compared byte by byte with one process. Bytes by count: what
#         is read at open and in passes, of all ranks, is what one process reads
#         and the small tensors of each layer once more for each other rank. The
#         same from parts, of which each rank has its own.
. tests/mpi/ranks.sh
ids=1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7
"$S" synth "$D/m" --preset tiny > "$D/out" 2>&1
verdict $? "a model"
mkdir "$D/slim"
cp "$D"/m/*.json "$D"/m/*.model "$D/slim"
"$S" run "$D/m" --ids $ids -n 12 --ignore-eos -t 1 --logits "$D/l" \
    --report "$D/r" > "$D/want" 2> "$D/err"
verdict $? "one process, without mpirun"
python3 -c '
import json, random
random.seed(1)
common = [random.randrange(700) for i in range(40)]
for i in range(7):
    prompt = (common if i % 3 else []) + [random.randrange(700)
                                          for j in range(3 + 5 * i)]
    print(json.dumps({"custom_id": str(i), "prompt": prompt, "seed": i,
                      "max_tokens": 4 + i, "temperature": 0.7 * (i % 2)}))
' > "$D/in"
answers() { sed 's/"created":[0-9]*//' "$1" | sort; }
batch() { # N OUT ARG...
    where=$2 how=$1
    shift 2
    set -- batch "$D/m" -i "$D/in" -o "$where" --ignore-eos -t 1 \
        --sequences 4 "$@"
    if [ "$how" = 0 ]; then "$S" "$@"; else ranks "$how" "$@"; fi
}
batch 0 "$D/b" --draft 2 > "$D/out" 2> "$D/err"
verdict $? "a batch in one process"
answers "$D/b" > "$D/b.want"
floor() { # N: the least budget that all ranks take
    budget=1000000
    for try in 1 2 3 4 5 6; do
        ranks "$1" run "$D/m" --ids $ids -n 12 --ignore-eos -t 1 \
            --logits "$D/l2" -m $budget > "$D/out" 2> "$D/err" && break
        more=$(sed -n 's/.*below the floor of \([0-9]*\) bytes.*/\1/p' "$D/err")
        budget=${more:-$budget}
    done
    echo "$budget"
}
"$S" run "$D/m" --ids $ids -n 12 --ignore-eos -t 1 --policy none \
    --prefetch none --report "$D/r" > "$D/out" 2> "$D/err"
# A saved sequence, and more ids that go on from it.
"$S" run "$D/m" --ids $ids -n 12 --ignore-eos -t 1 --state "$D/s" \
    > "$D/out" 2> "$D/err"
more=$ids,$(cat "$D/out"),5,6,7
cp "$D/s" "$D/s2"
"$S" run "$D/m" --ids "$more" -n 5 --ignore-eos -t 1 --state "$D/s2" \
    --logits "$D/l.more" > "$D/want.more" 2> "$D/err"
verdict $? "a saved sequence goes on in one process"
goes_on() { # N FILE
    ranks "$1" run "$D/m" --ids "$more" -n 5 --ignore-eos -t 1 -m 90M \
        --state "$2" --logits "$D/l2" > "$D/out" 2> "$D/err" &&
        cmp "$D/out" "$D/want.more"
}
for p in $NP; do
    for how in "-m $(floor "$p")" "-m 400M --draft 3 --rows 5"; do
        # shellcheck disable=SC2086
        ranks "$p" run "$D/m" --ids $ids -n 12 --ignore-eos -t 1 $how \
            --logits "$D/l2" > "$D/out" 2> "$D/err" &&
            cmp "$D/out" "$D/want" && cmp "$D/l2" "$D/l"
        verdict $? "$p ranks, run $how: ids and logits"
    done
    batch "$p" "$D/b$p" -m 90M --draft 2 > "$D/out" 2> "$D/err" &&
        answers "$D/b$p" | cmp - "$D/b.want"
    verdict $? "$p ranks, batch: the same answers"
    [ "$p" = 1 ] && continue
    rm -f "$D/sp"
    ranks "$p" run "$D/m" --ids $ids -n 12 --ignore-eos -t 1 -m 90M \
        --state "$D/sp" > "$D/out" 2> "$D/err" && cmp "$D/sp" "$D/s"
    verdict $? "$p ranks, --state: the file is that of one process"
    goes_on "$p" "$D/sp" && cmp "$D/l2" "$D/l.more" && cmp "$D/sp" "$D/s2"
    verdict $? "$p ranks go on from it: only the new rows are computed"
    cp "$D/s" "$D/sp"
    python3 -c '
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-50000, 2)
    byte = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([byte[0] ^ 1]))' "$D/sp"
    goes_on "$p" "$D/sp" && grep -q 'block .* is damaged' "$D/err" &&
        ! cmp -s "$D/l2" "$D/l.more"
    verdict $? "$p ranks, a damaged one: a sentence, and all rows are computed"
    for turn in 1 2; do
        rm -f "$D/b$p"
        batch "$p" "$D/b$p" -m 90M --prefix-cache "$D/cache$p" --report \
            "$D/r2" > "$D/out" 2> "$D/err" &&
            answers "$D/b$p" | cmp - "$D/b.want"
        verdict $? "$p ranks, --prefix-cache, run $turn: the same answers"
    done
    python3 -c '
import json, sys
b = json.load(open(sys.argv[1]))["batch"]
if b["prompt_tokens_read"] * 10 > b["prompt_tokens"]:
    sys.exit("%d of %d read" % (b["prompt_tokens_read"], b["prompt_tokens"]))' "$D/r2"
    verdict $? "$p ranks: nearly all of the prompts came from it"
    ranks "$p" run "$D/m" --ids $ids -n 12 --ignore-eos -t 1 --policy none \
        --prefetch none --report "$D/r2" --rank-weights \
        "$(echo 5 3 2 4 | cut -d ' ' -f "-$p" | tr ' ' ,)" > "$D/out" \
        2> "$D/err" && cmp "$D/out" "$D/want" &&
        python3 tests/mpi/shares.py "$D/m" "$D/r" "$D/r2" > "$D/out" 2>&1
    verdict $? "$p ranks, unequal shares: ids, and each byte is read once"
    # Parts: two for each rank, of unequal weights, in any order; of the model
    # itself only config and tokenizer are there.
    all= to= i=0
    while [ "$i" -lt $((2 * p)) ]; do
        to="$to --to $D/p$p.$i=$((i % 3 + 1))"
        all="--parts $D/p$p.$i $all"
        i=$((i + 1))
    done
    # shellcheck disable=SC2086
    "$S" spread "$D/m" $to > "$D/out" 2> "$D/err" &&
        "$S" run "$D/slim" --ids $ids -n 12 --ignore-eos -t 1 $all \
            --policy none --prefetch none --report "$D/r3" > "$D/out" \
            2> "$D/err" &&
        ranks "$p" run "$D/slim" --ids $ids -n 12 --ignore-eos -t 1 $all \
            --policy none --prefetch none --report "$D/r2" --logits "$D/l2" \
            > "$D/out" 2> "$D/err" && cmp "$D/out" "$D/want" &&
        cmp "$D/l2" "$D/l" &&
        python3 tests/mpi/shares.py "$D/m" "$D/r3" "$D/r2" > "$D/out" 2>&1
    verdict $? "$p ranks, two parts each: ids, logits, each byte is read once"
    # shellcheck disable=SC2086
    ranks "$p" run "$D/slim" --ids $ids -n 12 --ignore-eos -t 1 $all \
        -m 90M --logits "$D/l2" > "$D/out" 2> "$D/err" &&
        cmp "$D/l2" "$D/l"
    verdict $? "$p ranks, parts resident: logits"
done
if [ "$p" -gt 1 ]; then
    ranks "$p" run "$D/slim" --ids $ids --parts "$D/p$p.0" --parts \
        "$D/nowhere" > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q "part 1 of $((2 * p)) is missing" "$D/err"
    verdict $? "a part that no folder has: one sentence"
    ranks $((p + 1)) run "$D/slim" --ids $ids --parts "$D/p$p.0" > "$D/out" \
        2> "$D/err"
    [ $? -eq 1 ] && grep -q "cannot be shared by $((p + 1)) processes" "$D/err"
    verdict $? "parts that the ranks cannot share evenly: one sentence"
fi
echo "1..$n"
