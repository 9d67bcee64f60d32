#!/bin/sh
# Goal    quotas of processors bound the threads, as limits of memory bound the
#         budget, in the own group and every one above it; doctor names the
#         tightest; a budget is never nothing.
# Method  real groups of version 1 where they can be made; a mount namespace with
#         made-up files of version 2 and of /proc over the real ones.
. tests/tap.sh
"$S" synth "$D/m" --preset tiny > /dev/null 2>&1 || exit 1
threads() { # what a plan by default has
    python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["threads"])' "$1"
}

G=/sys/fs/cgroup/cpu/sluice-$$
if [ "$(nproc)" -gt 1 ] && mkdir -p "$G/below" 2> /dev/null &&
    echo 150000 > "$G/cpu.cfs_quota_us" 2> /dev/null; then
    trap 'rmdir "$G/below" "$G"; rm -rf "$D"' EXIT
    inside() { sh -c 'echo $$ > "$0/below/cgroup.procs"; exec "$@"' "$G" "$@"; }
    inside "$S" plan "$D/m" --json > "$D/plan.json" 2> "$D/err" &&
        [ "$(threads "$D/plan.json")" = 1 ]
    verdict $? "a quota of the group above: 1 thread of $(nproc)"
    inside "$S" run "$D/m" --ids 1,2 -n 1 --report "$D/r.json" > "$D/out" \
        2> "$D/err" && python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
sys.exit(r.get("threads", r.get("options", {}).get("threads")) != 1)' \
        "$D/r.json"
    verdict $? "a run has it too"
    inside "$S" doctor > "$D/out" 2> "$D/err"
    grep -q "^warn  cores .*1 thread: $G/cpu.cfs_quota_us allows 1.5" "$D/out"
    verdict $? "doctor names the file"
    inside "$S" run "$D/m" --ids 1,2 -n 1 -t 2 --report "$D/r.json" \
        > "$D/out" 2> "$D/err" && grep -q '"threads": 2' "$D/r.json"
    verdict $? "-t is what it says"
else
    skip "a quota of the group above" "no cgroup of processors to make"
fi

F=$D/fake
mkdir -p "$F/cgroup/a/b"
echo '0::/a/b' > "$F/self"
echo '1 2 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw' > "$F/mountinfo"
echo 'MemAvailable: 4194304 kB' > "$F/meminfo"
# faked COMMAND...: with these files in the place of the kernel's
faked() {
    unshare -m sh -c 'F=$0
mount --bind "$F/cgroup" /sys/fs/cgroup &&
mount --bind "$F/meminfo" /proc/meminfo &&
mount --bind "$F/self" /proc/$$/cgroup &&
mount --bind "$F/mountinfo" /proc/$$/mountinfo && exec "$@"' "$F" "$@"
}
if ! faked true 2> /dev/null; then
    skip "version 2, made up" "no mount namespace"
    echo 1..$n
    exit 0
fi
echo '100000 100000' > "$F/cgroup/a/cpu.max"
echo max > "$F/cgroup/a/b/memory.max"
echo 1048576000 > "$F/cgroup/a/memory.high"
echo 10485760 > "$F/cgroup/a/memory.current"
faked "$S" doctor > "$D/out" 2> "$D/err"
grep -q '^ok    memory  *4.00 GiB free, its cgroup allows 0.955 GiB by /sys/fs/cgroup/a/memory.high' "$D/out" &&
    { [ "$(nproc)" = 1 ] || grep -q '^warn  cores .*/sys/fs/cgroup/a/cpu.max' "$D/out"; }
verdict $? "version 2: the tightest of each kind is named"
faked "$S" plan "$D/m" --json > "$D/plan.json" 2> "$D/err" &&
    [ "$(threads "$D/plan.json")" = 1 ]
verdict $? "version 2: threads"
budget() { # FILE: the budget of the plan in it
    python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["plan"]["budget_bytes"])' "$1"
}
faked "$S" run "$D/m" --ids 1 -n 1 --report "$D/r.json" > "$D/out" \
    2> "$D/err" && [ "$(budget "$D/plan.json")" = "$(budget "$D/r.json")" ] &&
    [ "$(budget "$D/r.json")" -gt 500000000 ]
verdict $? "plan without -m plans what run takes"
echo 1000 > "$F/cgroup/a/memory.high"
echo 'MemAvailable: 0 kB' > "$F/meminfo"
faked "$S" run "$D/m" --ids 1 -n 1 > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'a memory budget of [0-9]* bytes is below the floor' "$D/err"
verdict $? "nothing is free: one sentence, and no budget without a limit"
faked "$S" doctor > "$D/out" 2> "$D/err"
grep -q 'a run without -m takes 0.0[1-9]' "$D/out"
verdict $? "and the budget is not 0"
rm "$F/cgroup/a/memory.high"
printf 'MemAvailable: 204800 kB\n' > "$F/meminfo"
faked "$S" run "$D/m" --ids 1,2 -n 2 > "$D/out" 2> "$D/err"
verdict $? "200 MiB are free, less than what was kept for others: it runs"
echo 1..$n
