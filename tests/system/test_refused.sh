#!/bin/sh
# Goal    what is only a convenience may be refused: locks, sync, statx, huge
#         pages, pinning, scheduling; the answers are the same. A file that
#         cannot be written is named. The progress line keeps to the terminal's
#         width, and a dumb one has none.
# Method  seccomp answers each system call with EPERM, ENOSYS and ENOTSUP;
#         script(1) is a terminal of 30 columns.
. tests/tap.sh
M=$D/m
"$S" synth "$M" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 > "$D/out" 2> "$D/err" || exit 1
for i in 1 2 3; do
    echo "{\"custom_id\": \"$i\", \"max_tokens\": 3, \"prompt\": [3, $i]}"
done > "$D/in"
job() { # OUT command...: the answers, without the time of day
    out=$1
    shift
    rm -f "$D/o"
    "$@" "$S" batch "$M" -i "$D/in" -o "$D/o" -c 64 --report "$D/r" \
        > "$D/out" 2> "$D/err" || return
    sed 's/"created":[0-9]*//' "$D/o" > "$out"
}
job "$D/right" env || exit 1
refuse() { # NAME NUMBERS
    python3 tests/system/refused.py 1 "$2" true
    if [ $? -eq 77 ]; then
        skip "$1" "no seccomp"
        return
    fi
    s=0
    for errno in 1 38 95; do
        job "$D/now" python3 tests/system/refused.py $errno "$2" &&
            cmp -s "$D/right" "$D/now" || { s=1; break; }
    done
    verdict $s "$1"
}
refuse "locks (flock)" 73
refuse "sync (fsync, fdatasync)" 74,75
refuse "statx" 332
refuse "madvise, mlock" 28,149,325
refuse "pinning" 203
refuse "scheduling" 141,142,144,314
refuse "advice, ranges (fadvise, fallocate, sync_file_range)" 221,285,277
refuse "io_uring" 425,426,427
refuse "NUMA (mbind, get_mempolicy, set_mempolicy)" 237,238,239
if grep -q fsanitize "${BUILD:-build}/flags"; then
    skip "limits (prlimit64)" "a sanitizer needs them"
else
    refuse "limits (prlimit64)" 302
fi

unwritten() { # COMMAND KIND TO...: every pwrite fails
    python3 tests/system/refused.py 5 18 true
    if [ $? -eq 77 ]; then
        skip "$1: a drive that takes nothing is named" "no seccomp"
        return
    fi
    command=$1 kind=$2
    shift 2
    python3 tests/system/refused.py 5 18 "$S" "$command" "$M" "$@" \
        > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && head -1 "$D/err" |
        grep -q "^sluice: $D/p/.*\.$kind: Input/output error$"
    verdict $? "$command: a drive that takes nothing is named"
}
unwritten pack pack --to "$D/p"
unwritten spread part --to "$D/p=1" --to "$D/p/2=1"

if ! command -v script > "$D/out"; then
    skip "a narrow terminal" "no script"
else
    TERM=xterm script -qec "stty cols 30; '$S' run '$M' --ids 3 -n 40 -c 64 \
        --ignore-eos -m 31M --simulate-drive 0.01,20000 > '$D/ids'" \
        "$D/tty" > "$D/out" 2>&1
    tr '\r' '\n' < "$D/tty" | sed 's/\x1b\[K//g' |
        awk '/^(prefill|decode) [0-9]*\// { n++; if (length > 29) bad++ }
             END { exit !n || bad }'
    verdict $? "the progress line keeps to 30 columns"
    TERM=dumb script -qec "'$S' run '$M' --ids 3 -n 20 -c 64 \
        --ignore-eos -m 31M --simulate-drive 0.01,20000 > '$D/ids'" \
        "$D/tty" > "$D/out" 2>&1
    ! grep -q 'layer [0-9]*/' "$D/tty"
    verdict $? "a dumb terminal has none"
fi
echo "1..$n"
