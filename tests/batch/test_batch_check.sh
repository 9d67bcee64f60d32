#!/bin/sh
# Goal    batch --check says beforehand what the job does: the lines that it
#         refuses, with their sentences, and how many passes it makes.
# Method  a small random checkpoint; the job itself, to the limit of every
#         request, with prompts that have nothing in common.
. tests/tap.sh
$S synth "$D/m" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 - > "$D/in" << 'END'
import json
for i in range(24):
    ask = {"custom_id": "r%d" % i, "max_tokens": 3 + i % 9, "ignore_eos": True,
           "prompt": [100 + 25 * i + k for k in range(2 + i * 7 % 50)]}
    if i % 10 == 4:
        ask["odd"] = 1
    if i == 11:
        ask["n"] = 3
    print(json.dumps(ask))
print('{"custom_id":"r1","prompt":[1]}\n\n{"custom_id":')
END
for at in 1 5; do
    $S batch "$D/m" --check "$D/in" -m 96M -t 1 --sequences $at > "$D/out" \
        2> "$D/err"
    [ $? -eq 3 ] && [ "$(grep -c '^line' "$D/out")" = 4 ] &&
        grep -q '^line 5, "r4": odd: this field is not known$' "$D/out" &&
        grep -q '^26 lines: 4 refused; 24 requests' "$D/out"
    verdict $? "$at at one time: what is refused"
    rm -f "$D/o"
    $S batch "$D/m" -i "$D/in" -o "$D/o" -m 96M -t 1 --sequences $at \
        --report "$D/report" 2> "$D/err"
    python3 - "$D" << 'END'
import json, re, sys
folder = sys.argv[1]
said = re.search("at most (\\d+) passes", open(folder + "/out").read())
report = json.load(open(folder + "/report"))
made = report["prefill"]["passes"] + report["decode"]["passes"]
print("#", said.group(1), "passes said,", made, "made", file=sys.stderr)
lines = [json.loads(x) for x in open(folder + "/o")]
wrong = sorted(int(x["id"].rsplit("_", 1)[1]) for x in lines if x["error"])
told = [int(x) for x in re.findall("(?m)^line (\\d+)",
                                   open(folder + "/out").read())]
sys.exit(int(said.group(1)) != made or wrong != told)
END
    verdict $? "$at at one time: the passes are those of the job"
done
$S batch "$D/m" --check "$D/in" -o "$D/o" -m 96M -t 1 > "$D/out" 2> "$D/err"
[ $? -eq 3 ] && grep -q '24 answered before; 0 requests' "$D/out"
verdict $? 'with -o: what OUT answers is left out'
$S batch "$D/m" --check "$D/in" -i "$D/in" 2> "$D/err"
[ $? -eq 2 ] && ! $S batch "$D/m" --check "$D/none" 2> "$D/err"
verdict $? 'no -i beside it; no such file'
echo '{"custom_id":"r","prompt":[1,2],"max_tokens":100000000}' > "$D/in"
$S batch "$D/m" --check "$D/in" -m 96M -t 1 > "$D/out" 2> "$D/err" &&
    grep -q '1 request, 2 prompt ids, at most [0-9]* new ones' "$D/out"
verdict $? 'a limit above the room: the context is what the budget holds'
echo "1..$n"
