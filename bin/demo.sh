#!/bin/sh
# The main job in a minute: a random checkpoint in the official layout, run
# within a budget several times smaller than it.
set -e
BUILD=${BUILD:-build}
MODEL=$BUILD/demo-model
BUDGET=96M
if [ ! -f "$MODEL/model.safetensors.index.json" ]; then
    echo "demo: writing a random checkpoint of 380 MB to $MODEL"
    "$BUILD/sluice" synth "$MODEL" --preset small --weights llm
fi
set -- run "$MODEL" -p 'The capital of France is' -n 12 --ignore-eos -m $BUDGET
echo "demo: $(du -sm "$MODEL" | cut -f1) MB of random weights, a budget of" \
    "$BUDGET, and so random words:"
echo
"$BUILD/sluice" "$@" --packed off --report "$BUILD/demo-report.json"
echo
echo "demo: the same with coded weights, from sluice pack:"
echo
"$BUILD/sluice" pack "$MODEL" | tail -n 2
"$BUILD/sluice" "$@"
echo
echo "demo: all figures of the run are in $BUILD/demo-report.json"
