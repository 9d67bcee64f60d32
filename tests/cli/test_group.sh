#!/bin/sh
# Goal    a run that begins inside a group's memory limit ends there: it is not
#         killed for what the kernel charges beside its own pages.
# Method  a model of 150 MB under ten limits in a cgroup of its own, with the whole
#         limit as its budget, and 4, 8 and 16 MiB less. A run is refused or
#         gives its ids; the last one is not refused. The kernel counts those
#         that it killed.
. tests/tap.sh
G=
if grep -q 'fsanitize=' "${BUILD:-build}/flags"; then
    skip "limits of a group" "a sanitizer takes memory of its own"
    echo "1..$n"
    exit 0
fi
if [ -w /sys/fs/cgroup/memory/cgroup.procs ] &&
    mkdir "/sys/fs/cgroup/memory/sluice-$$" 2> /dev/null; then
    G=/sys/fs/cgroup/memory/sluice-$$ limit=memory.limit_in_bytes
    events=memory.oom_control usage=memory.usage_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2> /dev/null &&
    mkdir "/sys/fs/cgroup/sluice-$$" 2> /dev/null; then
    G=/sys/fs/cgroup/sluice-$$ limit=memory.max events=memory.events usage=memory.current
fi
if [ -z "$G" ] || ! echo 1073741824 > "$G/$limit" 2> /dev/null; then
    skip "limits of a group" "no cgroup of memory to make"
    echo 1..$n
    exit 0
fi
trap 'rmdir "$G"; rm -rf "$D"' EXIT
inside() { sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$G" "$@"; }
killed() { sed -n 's/^oom_kill //p' "$G/$events"; }

"$S" synth "$D/m" --preset small --num-hidden-layers 5 --num-experts 16 \
    --vocab-size 2048 --seed 3 > /dev/null 2>&1 || exit 1
"$S" run "$D/m" --ids 1,2,3 -n 4 --ignore-eos > "$D/want" 2> /dev/null
for mib in 92 94 98 104 112 128 144 160 176 208; do
    echo $((mib << 20)) > "$G/$limit"
    for less in 0 4 8 16; do
        # A group pays for a run until the kernel has taken it apart.
        for wait in $(seq 40); do
            [ "$(cat "$G/$usage")" -lt 20000000 ] && break
            sleep 0.05
        done
        before=$(killed)
        inside "$S" run "$D/m" --ids 1,2,3 -n 4 --ignore-eos \
            -m $((mib - less))M > "$D/out" 2> "$D/err"
        status=$?
        [ "$(killed)" = "$before" ] &&
            if [ $status -eq 1 ] && [ $less -lt 16 ]; then
                grep -q 'the plan takes .*cgroup' "$D/err"
            else
                [ $status -eq 0 ] && cmp -s "$D/out" "$D/want"
            fi
        verdict $? "a limit of $mib MiB, -m $((mib - less))M: $status"
    done
done
echo 1..$n
