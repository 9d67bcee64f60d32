#!/bin/sh
# Goal    sluice run refuses what is wrong with a folder, a config, a prompt or
#         an option: one sentence that names file and thing, exit 1 (2 for
#         usage), no token. What only looks odd works.
# Method  a checkpoint of half a megabyte, spoilt in one way after the other by
#         ckpt_edit.py.
. tests/tap.sh
M=$D/m
SHARD=$M/model-0000
python=$(python3 -c 'import sys; print(sys.executable)') # not a wrapper
edited=0
edit() { # a change that was not made is a failure of the next verdict
    "$python" -ISE tests/cli/ckpt_edit.py "$M" "$@" || edited=1
}
fresh() {
    edited=0
    rm -rf "$M" && cp -r "$D/sound" "$M"
}
run() { # options of run
    "$S" run "$M" --ids 3,500,77 -n 3 --ignore-eos -c 64 "$@" \
        > "$D/out" 2> "$D/err"
}
# said STATUS WORDS: one sentence with them, at most a hint after it, no token
said() {
    [ ! -s "$D/out" ] && [ "$(grep -c '^sluice: ' "$D/err")" -eq 1 ] &&
        ! grep -qv '^sluice: \|^hint: \|^usage: \|--help shows' "$D/err" &&
        grep -q -- "$1" "$D/err"
}
# refused NAME WORDS [option...]: by the folder as it is now; then it is sound
refused() {
    name=$1 words=$2
    shift 2
    run "$@"
    [ $? -eq 1 ] && said "$words" && [ $edited -eq 0 ]
    verdict $? "$name"
    fresh
}
# fails STATUS NAME WORDS option...: in a sound folder
fails() {
    status=$1 name=$2 words=$3
    shift 3
    "$S" run "$@" > "$D/out" 2> "$D/err"
    [ $? -eq "$status" ] && said "$words"
    verdict $? "$name"
}
works() { # NAME [option...]: the same ids as ever
    name=$1
    shift
    run "$@" && [ "$(cat "$D/out")" = "$IDS" ] && [ $edited -eq 0 ]
    verdict $? "$name"
    fresh
}

"$S" synth "$D/sound" --preset tiny --hidden-size 64 --num-hidden-layers 3 \
    --vocab-size 512 --attn-res-block-size 2 --num-attention-heads 2 \
    --q-lora-rank 16 --kv-lora-rank 24 --qk-nope-head-dim 8 \
    --qk-rope-head-dim 8 --v-head-dim 8 --intermediate-size 64 \
    --num-experts 12 --num-experts-per-token 3 --moe-intermediate-size 32 \
    --routed-expert-hidden-size 32 --num-heads 2 --head-dim 16 \
    > "$D/out" 2> "$D/err" || exit 1
mkdir "$D/words" # most tests do without a tokenizer, and are quicker
cp "$D/sound/tiktoken.model" "$D/sound/tokenizer_config.json" "$D/words"
rm "$D/sound/tiktoken.model" "$D/sound/tokenizer_config.json"
fresh
run && grep -q '^prefill' "$D/err" && grep -qE '^[0-9]+,[0-9]+,[0-9]+$' "$D/out"
verdict $? "a sound folder"
IDS=$(cat "$D/out")

# ---- files ----
truncate -s -1 "${SHARD}2-of-000004.safetensors"
refused "a shard that is a byte short" "model-00002-of-000004.safetensors: "
truncate -s 1000 "${SHARD}2-of-000004.safetensors"
refused "cut in its header" "model-00002-of-000004.safetensors: "
truncate -s 5 "${SHARD}2-of-000004.safetensors"
refused "cut in its length" "model-00002-of-000004.safetensors: "
: > "${SHARD}2-of-000004.safetensors"
refused "empty" "model-00002-of-000004.safetensors: "
printf x >> "${SHARD}2-of-000004.safetensors"
refused "a byte too long" "model-00002-of-000004.safetensors: "
rm "${SHARD}3-of-000004.safetensors"
refused "missing" "model-00003-of-000004.safetensors"
mv "${SHARD}3-of-000004.safetensors" "${SHARD}3-of-000004.safetensors.part"
refused "a partial download" "model-00003-of-000004.safetensors"
rm "${SHARD}1-of-000004.safetensors" "${SHARD}4-of-000004.safetensors"
refused "two missing" "2 of 4 shards are missing"
cp "${SHARD}1-of-000004.safetensors" "${SHARD}1-of-000005.safetensors"
refused "of two sets" "model-00001-of-00000"
rm "${SHARD}2-of-000004.safetensors"
mkdir "${SHARD}2-of-000004.safetensors"
refused "a folder" "model-00002-of-000004.safetensors"
rm "${SHARD}2-of-000004.safetensors"
ln -s nowhere "${SHARD}2-of-000004.safetensors"
refused "a link to nowhere" "model-00002-of-000004.safetensors"
rm "${SHARD}2-of-000004.safetensors"
mkfifo "${SHARD}2-of-000004.safetensors"
refused "a pipe" "model-00002-of-000004.safetensors"
rm "$M"/model-*.safetensors
refused "no shard at all" "$M"

# ---- headers ----
for length in 0 1 7 -1 1000000000 9223372036854775807; do
    edit length 2 "$length"
    refused "a header length of $length" "model-00002-of-000004.safetensors: "
done
for text in '' '[]' '7' 'null' '{' '{"a":1}' '{"a":{}}' 'not JSON' \
    '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}' \
    '{"a":{"dtype":"F32","shape":"1","data_offsets":[0,4]}}' \
    '{"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}}' \
    '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{}}'; do
    edit header 2 "$text"
    refused "a header of '$text'" "model-0000[0-9]-of-000004.safetensors: "
done
edit header 2 '{"__metadata__":{}}'
refused "a header without tensors" "layers.1.*is missing"
edit header 2 "$(printf '%5000s' '' | tr ' ' '[')"
refused "a header of 5000 brackets" "model-00002-of-000004.safetensors: "
edit fill 2 99990
works "a header padded with spaces to 99,990 bytes"
edit fill 2 100010
works "to 100,010"

# ---- tensors ----
L=layers.1.self_attn
T=$L.k_proj.weight
edit place $T 0 4096
refused "overlapping" "model-00002-of-000004.safetensors: .*$L"
edit place $T 100000000 100004096
refused "out of the file" "model-00002-of-000004.safetensors: .*$T"
edit place $T -4096 0
refused "a negative offset" "model-00002-of-000004.safetensors: .*$T"
edit place $T 8192 4096
refused "an end before its beginning" "model-00002-of-000004.safetensors: .*$T"
edit place $T 9223372036854775000 9223372036854779096
refused "offsets that overflow" "model-00002-of-000004.safetensors: "
edit shape $T 64,32
refused "a transposed shape" "model-00002.*$T has the shape \[64,32\]"
edit shape $T 2048
refused "a flat shape" "model-00002-of-000004.safetensors: .*$T"
edit shape $T ''
refused "no shape" "model-00002-of-000004.safetensors: .*$T"
edit shape $T 4294967296,4294967296
refused "a shape that overflows" "model-00002-of-000004.safetensors: .*$T"
edit shape $T 32,-64
refused "a negative shape" "model-00002-of-000004.safetensors: .*$T"
edit shape $T 0,64
refused "a shape of nothing" "model-00002-of-000004.safetensors: .*$T"
edit dtype $T F16
refused "another dtype" "model-00002-of-000004.safetensors: .*$T"
edit dtype $T U8
refused "a dtype of other width" "model-00002-of-000004.safetensors: .*$T"
edit dtype $L.A_log BF16
refused "half the width" "model-00002-of-000004.safetensors: .*A_log"
edit dtype $T NOTHING
refused "no dtype" "model-00002-of-000004.safetensors: .*$T"
for t in $T $L.A_log layers.1.block_sparse_moe.experts.11.w2.weight_scale \
    layers.2.block_sparse_moe.experts.0.w1.weight_packed \
    layers.0.mlp.gate_proj.weight lm_head.weight embed_tokens.weight \
    layers.2.self_attn.kv_b_proj.weight model.norm.weight; do
    edit drop $t
    refused "without $t" "safetensors: tensor .*$t is missing"
done
edit rename $T language_model.model.layers.9.self_attn.k_proj.weight
refused "a layer too many" "model-00002.*layers.9.self_attn.k_proj.weight"
edit rename $T surprise
refused "an unknown tensor" "model-00002.*surprise"
edit copy $T lm_head.weight
refused "a tensor in two shards" "$T is also in"

# ---- where tensors lie does not matter ----
for t in $L.f_a_proj.weight $L.f_b_proj.weight $L.b_proj.weight \
    layers.1.input_layernorm.weight layers.1.self_attention_res_norm.weight \
    layers.2.self_attn.q_a_layernorm.weight $L.A_log $L.q_conv1d.weight \
    layers.1.block_sparse_moe.gate.e_score_correction_bias \
    layers.1.block_sparse_moe.experts.5.w2.weight_packed \
    layers.2.self_attn.kv_b_proj.weight model.norm.weight; do
    for other in layers.0.input_layernorm.weight lm_head.weight; do
        case $t$other in *model.norm*lm_head*) continue ;; esac
        edit move $t $other
        works "$t beside $other"
    done
done
for t in input_layernorm.weight self_attn.f_a_proj.weight \
    self_attn.dt_bias self_attn.b_proj.weight; do
    edit move layers.1.$t lm_head.weight
done
for t in mlp_res_norm.weight self_attn.f_b_proj.weight self_attn.v_proj.weight \
    block_sparse_moe.gate.weight block_sparse_moe.experts.7.w1.weight_scale; do
    edit move layers.1.$t layers.0.input_layernorm.weight
done
cp -r "$M" "$D/spread"
works "a layer over three shards" -m 100M
floor=$("$S" run "$D/spread" --ids 1 -n 1 -c 64 -m 1 2>&1 |
        sed -n 's/.*floor of \([0-9]*\) bytes.*/\1/p')
cp -r "$D/spread/." "$M"
works "at the floor" -m "$floor"
cp -r "$D/spread/." "$M"
works "on three drives" \
    --simulate-drive 1 --simulate-drive 2 --simulate-drive 0.5

# ---- config.json ----
rm "$M/config.json"
refused "no config" "config.json"
printf '{"model_type": "kimi_k3"' > "$M/config.json"
refused "half a config" "config.json"
printf '[]' > "$M/config.json"
refused "a list" "config.json"
cat > "$D/sweep.py" << 'PY'
"""Every field left out, and fields of any value: refused by name, or no matter.
"""
import copy, json, subprocess, sys
sluice, model, ids = sys.argv[1:]
path = model + "/config.json"
sound = json.load(open(path))
bad = []


def run(root):
    json.dump(root, open(path, "w"))
    return subprocess.run(
        [sluice, "run", model, "--ids", "3,500,77", "-n", "3", "-c", "64",
         "--ignore-eos"], capture_output=True, text=True)


def check(what, field, root):
    r = run(root)
    lines = r.stderr.splitlines()
    refused = r.returncode == 1 and not r.stdout and field in lines[0] and \
        lines[0].startswith("sluice: ") and \
        not any(not line.startswith("hint: ") for line in lines[1:])
    if not refused and (r.returncode or r.stdout.strip() != ids):
        bad.append("%s: exit %d, %s" % (what, r.returncode, r.stderr))
    return refused


def fields(at, way=()):
    for key, value in at.items():
        yield way + (key,)
        if isinstance(value, dict):
            yield from fields(value, way + (key,))


def holder(root, way):
    for key in way[:-1]:
        root = root[key]
    return root


named = 0
for way in list(fields(sound)):
    root = copy.deepcopy(sound)
    del holder(root, way)[way[-1]]
    # Without a whole group, the sentence may be about what is in it.
    field = "config_groups" if way[-1] == "group_0" else way[-1]
    named += check("without " + way[-1], field, root)
if named < 48:
    bad.append("only %d fields were missed" % named)
turn = 0
for way in list(fields(sound)):
    for value in None, -1, 0, "x", [], {}, 10**12, 1.5, 1e300, [[1]], True:
        turn += 1
        if turn % 3 == 0:
            root = copy.deepcopy(sound)
            old = holder(root, way)[way[-1]]
            if "_token_id" in way[-1] or way[-1] == "gate_lower_bound" or \
                    isinstance(old, float) and value == 1.5:
                continue  # it serves, with other ids
            holder(root, way)[way[-1]] = value
            check("%s = %r" % (".".join(way), value), "config", root)
print("# %d fields are needed" % named)
sys.exit("\n".join(bad) or 0)
PY
cp "$M/config.json" "$D/config.json"
"$python" "$D/sweep.py" "$S" "$M" "$IDS" > "$D/out" 2> "$D/err"
verdict $? "a config without each field, and with fields of any value"
fresh
text=text_config
edit config $text.hidden_size 4096
refused "a config that the tensors do not fit" "has the shape"
edit config $text.num_experts 11
refused "an expert fewer" "\[12\], by the config \[11\]"
edit config $text.num_experts 13
refused "an expert more" "\[12\], by the config \[13\]"
edit config $text.num_hidden_layers 4
refused "a layer more" "config.json: .*layer"

# ---- prompts ----
fails 1 "no such folder" "$D/none" "$D/none" --ids 1
fails 1 "a file for a folder" "$M/config.json" "$M/config.json" --ids 1
fails 1 "an id too large" "token id 512 is out of range" "$M" --ids 1,512
run --ids 511 2> /dev/null
verdict $? "the largest id"
fails 1 "an id of 33 bits" "token id 4294967296 is" "$M" --ids 4294967296
fails 2 "a negative id" "not a list like" "$M" --ids 1,-2
fails 2 "no list" "not a list like" "$M" --ids 1,,2
fails 2 "an empty list" "not a list like" "$M" --ids ''
cp "$D/words"/* "$M"
fails 1 "an empty prompt" "the prompt is empty" "$M" -p ''
: > "$D/empty"
fails 1 "an empty file" "the prompt is empty" "$M" -f "$D/empty"
fails 1 "no such file" "$D/nothing" "$M" -f "$D/nothing"
fails 1 "a folder for a file" "$D" "$M" -f "$D"
fails 1 "a file without end" "/dev/zero" "$M" -f /dev/zero -c 64
yes 'word and word ' | head -c 400000 > "$D/long"
fails 1 "100,000 tokens" "the prompt has [0-9]* ids, the context" "$M" -c 4096 \
    -f "$D/long"
for way in 7,1,0 8,1,0 9,1,1 8,2,1 7,2,0 7,3,1 1,8,0 1,9,1 8,0,0; do
    ids=${way%%,*} rest=${way#*,}
    list=$(seq -s, 1 "$ids") new=${rest%,*}
    if [ "${way##*,}" -eq 1 ]; then
        fails 1 "$ids ids and $new in a context of 8" "the context" "$M" \
            --ids "$list" -n "$new" -c 8 --ignore-eos
    else
        run --ids "$list" -n "$new" -c 8
        verdict $? "$ids ids and $new in a context of 8"
    fi
done

# ---- budgets ----
for with in '' '-t 1' '-c 4096' '--prefetch prev' \
    '--simulate-drive 1 --simulate-drive 2' \
    '--policy lru --rows 7' '--draft 4' '--draft auto --prefetch gate' \
    '--timeline /dev/null'; do
    run -m 1 $with
    [ $? -eq 1 ] && said 'is below the floor of [0-9]* bytes'
    verdict $? "below the floor: $with"
    floor=$(sed -n 's/.*floor of \([0-9]*\) bytes.*/\1/p' "$D/err")
    works "at the floor: $with" -m "$floor" $with
    run -m $((floor - 1)) $with
    [ $? -eq 1 ] && said "below the floor of $floor bytes"
    verdict $? "a byte below it: $with"
done

# ---- options ----
for bad in '-m 0' '-m 1e9' '-m 0x10' '-m 1.5' '-m 8Q' '-m -5' '-m 9999999999G' \
    '-m G' '-m 8GG' '-n x' '-n -1' '-n 99999999' '--rows 513' '-t 9999' \
    '-c 0' '-c 99999999' '--io mmap' '--policy fastest' '--policy min' \
    '--policy static-pin' '--prefetch psychic' \
    '--simulate-drive 0' '--simulate-drive 1,x' \
    '--simulate-drive 1e-9' '--simulate-drive nan' '--draft -1' '--draft 257' \
    '--temperature -1' '--top-p 0' '--top-p 2' '--temperature inf' \
    '--mla-latent-eps -1' '--seed x' '--bogus' '--ids' '-p' '-x' \
    '--ignore-eos=1' '--memory' '--report' 'another word'; do
    "$S" run "$M" --ids 1 $bad > "$D/out" 2> "$D/err"
    [ $? -eq 2 ] && said .
    verdict $? "usage: $bad"
done
fails 2 "usage: two prompts" "one of -p" "$M" --ids 1 -p x
fails 2 "usage: no prompt" "one of -p" "$M"
fails 2 "usage: no folder" "folder" --ids 1

# ---- what cannot be written ----
for file in report logits trace timeline; do
    run --$file "$D/none/x"
    [ $? -eq 1 ] && said "$D/none/x: "
    verdict $? "--$file in no folder"
    run --$file "$D"
    [ $? -eq 1 ] && said "$D: "
    verdict $? "--$file that is a folder"
done
for file in report logits; do
    "$S" run "$M" --ids 3 -n 1 --$file /dev/full > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && [ "$(grep -c '^sluice: /dev/full: ' "$D/err")" -eq 1 ]
    verdict $? "--$file on a full drive"
done
"$S" run "$M" --ids 3 -n 9 --ignore-eos > /dev/full 2> "$D/err"
[ $? -eq 1 ] && : > "$D/out" && said 'stdout .*No space'
verdict $? "stdout on a full drive"
"$S" run "$M" --ids 3 -n 9 --ignore-eos 2> "$D/err" >&-
[ $? -eq 1 ] && said 'stdout .*Bad file'
verdict $? "no stdout"
"$S" run "$M" --ids 3 -n 9 --ignore-eos --logits "$D/logits" 2> "$D/err" >&-
[ $? -eq 1 ] && said 'stdout .*Bad file'
verdict $? "no stdout, and another file in its place"
{
    "$S" run "$M" --ids 3 -n 50 --ignore-eos 2> "$D/err"
    echo $? > "$D/status"
} | :
[ "$(cat "$D/status")" -eq 1 ] && said 'stdout .*Broken pipe'
verdict $? "stdout that nobody reads"
"$S" run "$M" --ids 3,500,77 -n 3 --ignore-eos -c 64 --report "$D/report" \
    --logits "$D/logits" > "$D/out" 2>&- <&-
[ $? -eq 0 ] && [ "$(cat "$D/out")" = "$IDS" ] &&
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$D/report" &&
    [ "$(stat -c %s "$D/logits")" -eq $((5 * 512 * 4)) ]
verdict $? "no stdin and no stderr"
echo "1..$n"
