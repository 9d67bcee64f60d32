#!/bin/sh
# The main job in a minute: a random checkpoint in the official layout, run
# within a budget several times smaller than it.
set -e
BUILD=${BUILD:-build}
MODEL=$BUILD/demo-model
BUDGET=96M
if [ ! -f "$MODEL/model.safetensors.index.json" ]; then
    echo "demo: writing a random checkpoint of 380 MB to $MODEL"
    "$BUILD/sluice" synth "$MODEL" --preset small
fi
echo "demo: $(du -sm "$MODEL" | cut -f1) MB of weights, a budget of $BUDGET:"
echo
echo "\$ sluice run $MODEL -p 'The capital of France is' -n 12 -m $BUDGET"
"$BUILD/sluice" run "$MODEL" -p 'The capital of France is' -n 12 \
    --ignore-eos -m $BUDGET --report "$BUILD/demo-report.json"
echo
echo "demo: random weights write random tokens; the report is in" \
    "$BUILD/demo-report.json:"
python3 - "$BUILD/demo-report.json" << 'END' 2> /dev/null || true
import json, sys
report = json.load(open(sys.argv[1]))
for part in ("plan", "io", "decode", "experts"):
    print(part)
    for name, value in report[part].items():
        print("    %-24s %s" % (name, value))
END
