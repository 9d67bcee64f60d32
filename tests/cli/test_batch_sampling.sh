#!/bin/sh
# Goal    samplers, choices, logprobs, echo, stop ids and forms of a batch: what
#         is asked for is what is done, and the same bits at every setting.
# Method  tests/cli/batch_sampling.py, on a small random checkpoint.
. tests/tap.sh
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/cli/batch_sampling.py "$S" "$D"
