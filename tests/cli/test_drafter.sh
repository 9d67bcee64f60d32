#!/bin/sh
# Goal    what a person does with a drafter: make one, look at it, plan with it,
#         run with it and get the same text.
# Method  tiny checkpoints and drafters of both layouts in a temporary folder;
#         the headers of the published drafters where they are.
. tests/tap.sh
has() { # name words file
    grep -qF -- "$2" "$3"
    s=$?
    [ $s -eq 0 ] || sed 's/^/# /' "$3"
    verdict $s "$1"
}

"$S" synth "$D/k3" --preset tiny > "$D/out" 2>&1
verdict $? "a model"
for kind in drafter drafter-mla; do
    "$S" synth "$D/$kind" --preset $kind --like "$D/k3" > "$D/out" 2>&1
    verdict $? "$kind: written"
    "$S" doctor "$D/$kind" > "$D/out" 2>&1
    verdict $? "$kind: doctor finds nothing"
    has "$kind: doctor says what to do" "--drafter $D/$kind" "$D/out"
    "$S" verify "$D/$kind" > "$D/out" 2>&1
    verdict $? "$kind: verify finds nothing"
    "$S" run "$D/k3" --ids 3,7,11 -n 24 --ignore-eos > "$D/plain" 2> /dev/null
    for draft in 7 auto; do
        "$S" run "$D/k3" --ids 3,7,11 -n 24 --ignore-eos --draft $draft \
            --drafter "$D/$kind" --report "$D/report" > "$D/with" 2> "$D/err"
        cmp -s "$D/plain" "$D/with"
        verdict $? "$kind: the same ids, --draft $draft"
    done
    has "$kind: a line about it" "drafter: " "$D/err"
    has "$kind: the report has it" '"sweeps"' "$D/report"
    "$S" plan "$D/k3" --drafter "$D/$kind" > "$D/out" 2>&1
    verdict $? "$kind: plan"
    has "$kind: plan counts its memory" "  drafter " "$D/out"
    "$S" plan "$D/k3" --drafter "$D/$kind" --json > "$D/out" 2>&1 &&
        python3 -c "import json, sys; d = json.load(open(sys.argv[1]))
assert d['drafter']['memory_bytes'] > 0 and d['drafter']['budgets']" "$D/out"
    verdict $? "$kind: plan --json"
done
printf '{"custom_id":"%s","prompt":[3,7,%s],"max_tokens":12}\n' a 11 b 12 c 13 \
    > "$D/in"
"$S" batch "$D/k3" -i "$D/in" -o "$D/o1" > "$D/out" 2>&1
"$S" batch "$D/k3" -i "$D/in" -o "$D/o2" --drafter "$D/drafter" > "$D/out" 2>&1
verdict $? "batch"
for i in 1 2; do # all but times and names
    python3 -c "import json, sys
for line in sorted(open(sys.argv[1])):
    answer = json.loads(line)
    print(answer['custom_id'], json.dumps(answer['response']['body']['choices']))
" "$D/o$i" > "$D/s$i" 2> "$D/err"
done
[ -s "$D/s1" ] && cmp -s "$D/s1" "$D/s2"
verdict $? "batch: the same answers"

# With chance 1 a pass has one id more than drafts; its experts are one row's,
# and then more, but fewer than those of as many passes.
"$S" run "$D/k3" --ids 3,7,11 -n 40 --ignore-eos --trace "$D/trace" \
    > "$D/out" 2> "$D/err" &&
    "$S" replay "$D/trace" --acceptance 1 --json > "$D/json" &&
    python3 -c "import json, sys
c = json.load(open(sys.argv[2] + '/config.json'))['text_config']
one = c['num_experts_per_token'] * (c['num_hidden_layers'] -
                                    c['first_k_dense_replace'])
d = json.load(open(sys.argv[1]))[0]['drafts']
assert [x['ids_per_pass'] for x in d] == [1 + i for i in range(8)], d
e = [x['experts_per_pass'] for x in d]
assert e[0] == one and all(a < b < a + one for a, b in zip(e, e[1:])), e
" "$D/json" "$D/k3" > "$D/out" 2> "$D/err"
verdict $? "replay --acceptance: ids and experts of a pass"
"$S" replay "$D/trace" --acceptance 0.5 > "$D/out" 2>&1
has "replay --acceptance: a table" "     1        1.50" "$D/out"
"$S" replay "$D/trace" --acceptance 2 > "$D/out" 2> "$D/err"
[ $? -eq 2 ]
verdict $? "replay --acceptance 2: exit 2"

"$S" run "$D/k3" --ids 3 -n 2 --drafter "$D/none" > "$D/out" 2> "$D/err"
[ $? -eq 1 ]
verdict $? "no such folder: exit 1"
has "no such folder: it is named" "$D/none" "$D/err"
"$S" run "$D/k3" --ids 3 -n 2 --drafter "$D/k3" > "$D/out" 2> "$D/err"
[ $? -eq 1 ]
verdict $? "a model is no drafter: exit 1"
has "a model is no drafter: a sentence" "DSparkDraftModel" "$D/err"
"$S" run "$D/k3" --ids 3 -n 2 --drafter "$D/drafter" --draft off \
    > "$D/out" 2> "$D/err"
[ $? -eq 2 ]
verdict $? "--draft off with a drafter: exit 2"
"$S" synth "$D/x" --preset drafter > "$D/out" 2> "$D/err"
[ $? -eq 2 ]
verdict $? "synth: a drafter for no model: exit 2"
# A value that is no number, in the middle of the file.
size=$(stat -c %s "$D/drafter/model.safetensors")
printf '\300\177' | dd of="$D/drafter/model.safetensors" bs=1 conv=notrunc \
    seek=$(((size / 4) * 2)) 2> /dev/null
"$S" verify "$D/drafter" > "$D/out" 2> "$D/err"
[ $? -eq 1 ]
verdict $? "verify: NaN: exit 1"
has "verify: the tensor is named" "is not finite" "$D/err"

P=../shared/data/dspark/published
if [ -d $P ]; then
    for kind in inferact radixark; do
        mkdir "$D/$kind"
        cp $P/$kind.config.json "$D/$kind/config.json"
        python3 - $P/$kind.header.json "$D/$kind/model.safetensors" <<'END'
import json, struct, sys
text = open(sys.argv[1], 'rb').read()
end = max(t['data_offsets'][1] for n, t in json.loads(text).items()
          if n != '__metadata__')
with open(sys.argv[2], 'wb') as f:
    f.write(struct.pack('<Q', len(text)) + text)
    f.truncate(8 + len(text) + end)
END
        "$S" doctor "$D/$kind" > "$D/out" 2>&1
        verdict $? "$kind: the published header and config"
    done
else
    echo "# left out: the published headers are not in $P"
fi
echo "1..$n"
