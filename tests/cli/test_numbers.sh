#!/bin/sh
# Goal    numbers from files and options are not believed: those that no run has
#         end a command in one sentence, with exit status 1 or 2, and nothing is
#         written out of bounds.
# Method  a timeline, a report and options with numbers that no integer holds.
#         In a build with -fsanitize=float-cast-overflow a cast of one aborts.
. tests/tap.sh
"$S" synth "$D/m" --preset tiny > /dev/null 2>&1 || exit 1
"$S" run "$D/m" --ids 1,2,3 -n 4 --ignore-eos --report "$D/r.json" \
    --timeline "$D/t.json" --trace "$D/t" --simulate-drive 1 > /dev/null \
    2> "$D/err" || cat "$D/err"
one_sentence() { # status: at most 2, and not of a signal; one line and a hint
    [ "$1" -eq 1 ] || [ "$1" -eq 2 ] || return 1
    [ "$(grep -c '^sluice: ' "$D/err")" -eq 1 ]
}
for number in 9e18 -9e18 1e300 -1e300 4e15; do
    for field in ts dur tid; do
        python3 - "$D/t.json" "$field" "$number" > "$D/bad.json" << 'PY'
import re, sys
text = open(sys.argv[1]).read().split("\n")
for i in range(len(text) - 4, 0, -1):
    if '"ph":"X"' in text[i]:
        text[i] = re.sub('"%s":[-0-9.e]*' % sys.argv[2],
                         '"%s":%s' % (sys.argv[2], sys.argv[3]), text[i])
        break
print("\n".join(text), end="")
PY
        "$S" profile --report "$D/r.json" --timeline "$D/bad.json" -o "$D/p.html" \
            > "$D/out" 2> "$D/err"
        status=$?
        one_sentence $status && grep -q 'is of no run' "$D/err"
        verdict $? "a timeline with $field $number: $status"
    done
done
for number in 9e18 -9e18 1e300; do
    sed "s/\"bytes\":[0-9]*/\"bytes\":$number/; s/\"lost\":[0-9]*/\"lost\":$number/; s/\"ring_bytes\":[0-9]*/\"ring_bytes\":$number/" \
        "$D/t.json" > "$D/bad.json"
    "$S" profile --report "$D/r.json" --timeline "$D/bad.json" -o "$D/p.html" \
        > "$D/out" 2> "$D/err"
    [ $? -lt 3 ]
    verdict $? "a timeline with amounts of $number"
    python3 - "$D/r.json" "$number" > "$D/bad.json" << 'PY'
import json, sys
r = json.load(open(sys.argv[1]))
def spoil(o):
    for key, value in (o.items() if isinstance(o, dict) else enumerate(o)):
        if isinstance(value, (dict, list)):
            spoil(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            o[key] = float(sys.argv[2])
spoil(r)
json.dump(r, sys.stdout)
PY
    "$S" profile --report "$D/bad.json" -o "$D/p.html" > "$D/out" 2> "$D/err"
    [ $? -lt 3 ]
    verdict $? "a report with nothing but $number"
    "$S" profile --report "$D/bad.json" --trace "$D/t" -o "$D/p.html" > "$D/out" \
        2> "$D/err"
    [ $? -lt 3 ]
    verdict $? "the same with a trace"
    "$S" replay "$D/t" --simulate-drive 1 --compute "$D/bad.json" > "$D/out" \
        2> "$D/err"
    [ $? -lt 3 ]
    verdict $? "the same as the cost of compute"
done
for seconds in 1e300 1e10 -1 1e5; do
    "$S" replay "$D/t" --simulate-drive 1 --compute $seconds > "$D/out" \
        2> "$D/err"
    one_sentence $?
    verdict $? "replay --compute $seconds"
done
for option in '--mla-latent-eps 1e300' '--mla-latent-eps -1' \
    '--mla-latent-eps nan' '--mla-latent-eps 2' '--simulate-drive 1e300' \
    '--simulate-drive 1,1e300' '-m 1e300' '--temperature -1' '--top-p 1e300'; do
    "$S" run "$D/m" --ids 1 -n 1 $option > "$D/out" 2> "$D/err"
    status=$?
    one_sentence $status
    verdict $? "run $option: $status"
done
for option in '--compute 1e300' '--compute -1' '--simulate-drive 1e300'; do
    "$S" plan "$D/m" $option > "$D/out" 2> "$D/err"
    [ $? -lt 3 ]
    verdict $? "plan $option"
done
for field in rms_norm_eps routed_scaling_factor; do
    for number in 1e300 -1e300 1e-300; do
        rm -rf "$D/n" && cp -r "$D/m" "$D/n"
        sed -i "s/\"$field\": [-0-9.e]*/\"$field\": $number/" "$D/n/config.json"
        "$S" run "$D/n" --ids 1 -n 1 > "$D/out" 2> "$D/err"
        [ $? -eq 1 ] && grep -q "$field is" "$D/err"
        verdict $? "a config with $field $number"
    done
done
echo 1..$n
