#!/bin/sh
# Goal    a build without MPI that mpirun starts several times says so, instead
#         of writing one output several times; sluice plan forecasts machines.
# Method  the variables that launchers set, with one process and with several.
#         The forecast of the bench model on 4 machines: with a network that
#         takes no time 3 times as fast at least, with a slow one less.
. tests/tap.sh
for name in OMPI_COMM_WORLD_SIZE PMI_SIZE; do
    if ldd "$S" | grep -q 'libmpi'; then
        skip "$name" "this build has MPI"
        continue
    fi
    env $name=2 "$S" --version > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && [ ! -s "$D/out" ] && grep -q 'make MPI=1' "$D/err"
    verdict $? "$name=2: a sentence"
    env $name=1 "$S" --version > "$D/out" 2> "$D/err" && [ ! -s "$D/err" ]
    verdict $? "$name=1: as without it"
done
"$S" synth "$D/m" --preset bench --sparse > "$D/out" 2>&1
"$S" run "$D/m" --ids 1 -n 1 --rank-weights 1,1 > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && grep -q 'rank-weights' "$D/err"
verdict $? "--rank-weights: a sentence"
for network in 1000,0 0.001,1000; do
    "$S" plan "$D/m" -m 2G --simulate-drive 1 --nodes 4 --network $network \
        --json 2> "$D/err" | python3 -c 'import json, sys
line = json.load(sys.stdin)["nodes"]["lines"][0]
print(line["copies_pass_s"] / line["pass_s"])'
done > "$D/out"
tr '\n' ' ' < "$D/out" | awk '{ exit !($1 > 3 && $2 < $1 / 1.1 && $2 > 0) }'
verdict $? "plan --nodes 4: what the drives of four machines are worth"
floor=$("$S" plan "$D/m" --json 2> "$D/err" |
    python3 -c 'import json, sys
print(json.load(sys.stdin)["ladder"][0]["floor_bytes"])')
"$S" plan "$D/m" -m $((floor + (33 << 20))) --nodes 2 > "$D/out" 2> "$D/err" &&
    grep -q '^ *16  does not fit' "$D/out"
verdict $? "plan --nodes at the floor: many rows do not fit"
for wrong in 1 17; do
    "$S" plan "$D/m" --nodes $wrong > "$D/out" 2> "$D/err"
    [ $? -eq 2 ]
    verdict $? "plan --nodes $wrong: a sentence"
done
echo 1..$n
