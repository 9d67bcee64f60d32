#!/bin/sh
# Goal    --draft changes how many passes a text takes and nothing else.
# Method  a checkpoint whose greedy output repeats, and one whose output does
#         not: ids and logits, greedy and sampled, for several widths.
. tests/tap.sh
SMALL="--preset tiny --num-hidden-layers 5 --num-experts 16 --hidden-size 64"
$S synth "$D/echo" $SMALL --echo 6 || exit 1
$S synth "$D/random" $SMALL || exit 1
run() { # model width arguments...
    model=$1 width=$2
    shift 2
    "$S" run "$D/$model" --ids 1,2,3,1,2,3 -n 28 -t 1 --draft "$width" "$@" \
        --report "$D/report" --logits "$D/logits.$width" \
        > "$D/ids.$width" 2> "$D/err"
}
passes() { sed -n '/"decode"/,/}/s/.*"passes": \([0-9]*\).*/\1/p' "$D/report"; }

for kind in echo random; do
    for sampled in "" "--temperature 0.9 --top-p 0.8 --seed 5"; do
        run $kind off $sampled && [ -s "$D/ids.off" ]
        verdict $? "$kind, off, ${sampled:-greedy}"
        for width in auto 3; do
            run $kind $width $sampled &&
                cmp -s "$D/ids.off" "$D/ids.$width" &&
                cmp -s "$D/logits.off" "$D/logits.$width"
            verdict $? "$kind, $width, ${sampled:-greedy}: the same bytes"
        done
    done
done
run echo auto && [ "$(passes)" -lt 27 ]
verdict $? "auto takes fewer passes for a cycle"
run echo 3 && [ "$(passes)" -lt 16 ]
verdict $? "3 takes fewer still"
run random auto && [ "$(passes)" -eq 27 ]
verdict $? "auto drafts nothing where nothing repeats"
run echo none
[ $? -eq 2 ] && grep -q -- --draft "$D/err"
verdict $? "a width that is none is a usage error"
echo "1..$n"
