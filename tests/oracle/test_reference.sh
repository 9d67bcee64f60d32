#!/bin/sh
# Goal    it is Kimi K3 at shapes that nobody tuned for, and a comparison that
#         would notice if it were not.
# Method  reference.py, float64 from the formulas of K3, reads tiny
#         checkpoints with the sizes that are easily confused made unequal or
#         odd: every logit within 2e-5 of the largest, the same greedy ids, the
#         same experts and shares; the same bytes again at the floor of the
#         budget and in passes of 3 rows. Then each of mistakes.py is put into
#         the reference, and has to be noticed.
S=${BUILD:-build}/sluice
HERE=$(dirname "$0")
PYTHON=/usr/bin/python3
[ -x $PYTHON ] || PYTHON=python3
if ! $PYTHON -c 'import numpy' 2> /dev/null; then
    echo "ok 1 - reference # SKIP numpy is missing"
    echo "1..1"
    exit 0
fi
export OPENBLAS_NUM_THREADS=1
D=$(mktemp -d "${BUILD:-build}/reference.XXXXXX") || exit 1
trap 'rm -rf "$D"' EXIT
IDS=1,2,3,300,6,8,5,200,42,5,77,12
n=0
verdict() { # status name
    n=$((n + 1))
    [ "$1" -eq 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}
make_model() { # fields...
    rm -rf "$D/m"
    "$S" synth "$D/m" --preset tiny "$@"
}
run() { # name options...: $D/name.ids, .logits, .trace
    to=$D/$1
    shift
    "$S" run "$D/m" --ids $IDS -n 8 --ignore-eos -c 128 -t 2 "$@" \
        --logits "$to.logits" --trace "$to.trace" > "$to.ids" 2> "$D/err" ||
        { sed 's/^/# /' "$D/err" && return 1; }
}
refer() { # name options...
    from=$D/$1
    shift
    $PYTHON -B "$HERE/reference.py" "$D/m" --ids $IDS \
        --new "$(cat "$from.ids")" \
        --logits "$from.logits" --trace "$from.trace" "$@"
}
agrees() { # title run-name options...
    title=$1
    shift
    refer "$@" > "$D/out" 2>&1
    s=$?
    sed 's/^/# /' "$D/out"
    verdict $s "$title"
}
same() { # title run-name run-name
    cmp "$D/$2.ids" "$D/$3.ids" && cmp "$D/$2.logits" "$D/$3.logits"
    verdict $? "$1"
}
shape() { # name fields...
    name=$1
    shift
    make_model "$@" && run plenty -m 200M
    agrees "$name" plenty
    run floor -m 1 > "$D/out"
    floor=$(sed -n 's/.*the floor of \([0-9]*\) bytes.*/\1/p' "$D/err")
    run floor -m "$floor"
    same "$name: at the floor, $floor bytes" plenty floor
    run rows -m $((floor + 1000000)) --rows 3
    same "$name: in passes of 3 rows" plenty rows
}
# notices MISTAKES run-name options...: a case each; logits have to tell them
notices() {
    mistakes=$1
    shift
    if ! refer "$@" --break "$mistakes" > "$D/out" 2> "$D/err"; then
        sed 's/^/# /' "$D/err"
        verdict 1 "mistakes: $mistakes"
    fi
    while read -r mistake seen apart; do
        [ "$seen" = noticed ] && awk "BEGIN { exit !($apart > 1e-4) }"
        verdict $? "notices $mistake ($apart)"
    done < "$D/out"
}

$PYTHON -B "$HERE/reference.py" "$HERE/fixtures/c" \
    --ids 5,4,3,2,1,0,255,100,50 --logits "$HERE/fixtures/c/logits.f32" \
    > "$D/out" 2>&1
s=$?
sed 's/^/# /' "$D/out"
verdict $s "the implementation behind fixtures/c says the same"
shape "odd sizes" --seed 1 --num-hidden-layers 6 --hidden-size 133 \
    --vocab-size 601 --q-lora-rank 33 --kv-lora-rank 37 --qk-nope-head-dim 21 \
    --qk-rope-head-dim 7 --v-head-dim 19 --num-attention-heads 5 \
    --num-heads 3 --head-dim 15 --intermediate-size 201
shape "one of everything" --seed 2 --num-hidden-layers 5 \
    --attn-res-block-size 1 --num-experts-per-token 1 --num-shared-experts 1 \
    --short-conv-kernel-size 1 --num-attention-heads 1
shape "every expert, one long block" --seed 3 --num-hidden-layers 5 \
    --attn-res-block-size 12 --num-experts 6 --num-experts-per-token 6 \
    --num-shared-experts 3 --short-conv-kernel-size 3
shape "MLA first, no dense layer, many experts" --seed 4 \
    --num-hidden-layers 6 --full-attn-layers 1,2,5 --first-k-dense-replace 0 \
    --num-experts 41 --num-experts-per-token 5 --head-dim 33 \
    --moe-intermediate-size 32 --routed-expert-hidden-size 96
shape "other constants" --seed 5 --num-hidden-layers 5 --num-heads 7 \
    --num-attention-heads 2 --rms-norm-eps 1e-3 --gate-lower-bound -3.0 \
    --activation-situ-beta 3.0 --activation-situ-linear-beta 2.0
# Without the norm of the latent the size of the router's weights is visible.
shape "weights as they are" --seed 6 --num-hidden-layers 4 \
    --latent-moe-use-norm false --moe-renormalize false \
    --routed-scaling-factor 0.5
shape "weights renormalised and scaled" --seed 7 --num-hidden-layers 4 \
    --latent-moe-use-norm false --routed-scaling-factor 2.5
notices no-renormalisation plenty
shape "blocks that do not divide, two MLA in a row" --seed 8 \
    --num-hidden-layers 7 --attn-res-block-size 4 --full-attn-layers 3,4,7 \
    --first-k-dense-replace 2 --short-conv-kernel-size 2
notices visible plenty

# On that shape, too. The epsilon of the latent norms is too small to be seen
# in the size of a difference: a large one shows its place, bits the default.
run default -m 200M
run small -m 200M --mla-latent-eps 1e-6
same "the latent epsilon is 1e-6" default small
run config -m 200M --mla-latent-eps 1e-5
! cmp -s "$D/default.logits" "$D/config.logits"
verdict $? "and not that of the other norms, 1e-5"
run large -m 200M --mla-latent-eps 0.1
agrees "a latent epsilon of 0.1" large --mla-latent-eps 0.1
notices latent-eps-1e-5 large --mla-latent-eps 0.1

# As K3: 16 experts a token, blocks of 12 layers and the block that begins.
shape "16 of 20 experts, two long blocks" --seed 10 --num-hidden-layers 14 \
    --attn-res-block-size 12 --num-experts 20 --num-experts-per-token 16 \
    --hidden-size 96 --moe-intermediate-size 32

IDS=$(seq -s , 3 3 282)
shape "a prompt of 94 ids" --seed 9 --num-hidden-layers 4 \
    --attn-res-block-size 2 --full-attn-layers 2,4
echo "1..$n"
