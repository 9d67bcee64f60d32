#!/bin/sh
# Goal    whatever the system refuses, interrupts or takes away, a run gives the
#         same ids, or stops with a sentence; a signal ends it soon.
# Method  a tiny model with few descriptors, few threads, little locked memory,
#         no io_uring, calls that are interrupted, stops and continues, on file
#         systems of other kinds, in a small cgroup. What a tool or a right is
#         missing for is skipped.
# Alone:  it looks at the page cache and at what the machine has free.
. tests/tap.sh
R= G= # a folder in memory, a cgroup
cleanup() {
    rm -rf "$D" ${R:+"$R"}
    [ -z "$G" ] || rmdir "$G" 2> /dev/null
}
trap cleanup EXIT
chmod 755 "$D"
sanitized=$(grep -o 'fsanitize=[a-z]*' "${BUILD:-build}/flags")
has() {
    command -v "$1" > /dev/null 2>&1
}
# same NAME command...: it gives the ids, and nothing but facts on stderr
same() {
    name=$1
    shift
    "$@" > "$D/out" 2> "$D/err"
    s=$?
    [ $s -eq 0 ] && [ "$(cat "$D/out")" = "$IDS" ]
    verdict $? "$name"
}
field() { # name: the first number or word at that name in the report
    sed -n "s/^ *\"$1\": \"*\([^\",]*\)\"*,*\$/\1/p" "$D/r" | head -n 1
}
"$S" synth "$D/m" --preset tiny > "$D/out" 2> "$D/err" || exit 1
rm "$D/m/tiktoken.model"
M=$D/m
ARGS="--ids 3,500,77 -n 5 --ignore-eos -c 64 --report $D/r"
"$S" run "$M" $ARGS > "$D/out" 2> "$D/err"
verdict $? "undisturbed"
IDS=$(cat "$D/out")
FLOOR=$("$S" run "$M" $ARGS -m 1 2>&1 |
        sed -n 's/.*floor of \([0-9]*\) bytes.*/\1/p')

# ---- limits ----
same "64 descriptors" sh -c "ulimit -n 64; exec $S run $M $ARGS"
(ulimit -n 12; exec "$S" run "$M" $ARGS) > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ ! -s "$D/out" ] && grep -q 'model-.*Too many open' "$D/err" &&
    grep -q '^hint: .*ulimit -n' "$D/err"
verdict $? "12 descriptors: a sentence and a hint"
s=0
for option in report trace timeline logits; do
    (ulimit -f 1; exec "$S" run "$M" --ids 3 -n 20 --ignore-eos --$option \
        "$D/short") > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q '^sluice: .*short.*File too large' "$D/err" || s=1
done
verdict $s "files of at most 1 KiB: a sentence"
nobody() {
    setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
if has setpriv && nobody true 2> /dev/null && nobody test -x "$S"; then
    rm -f "$D/r" && : > "$D/r" && chmod 666 "$D/r"
    for kib in 0 64 100000; do
        same "$kib KiB of locked memory" nobody sh -c \
            "ulimit -l $kib; exec $S run $M $ARGS -m 40M"
    done
    nobody sh -c "ulimit -l 64; exec $S run $M $ARGS" > "$D/out" 2> "$D/err"
    [ $? -eq 0 ] && grep -q '^sluice: .*ulimit -l' "$D/err"
    verdict $? "locked memory that is refused is said"
    chmod 000 "$M"
    nobody "$S" run "$M" $ARGS > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q "^sluice: $M.*Permission denied" "$D/err"
    verdict $? "a folder that may not be read"
    chmod 755 "$M"
    chmod 000 "$M/model-00003-of-000014.safetensors"
    nobody "$S" run "$M" $ARGS > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q "^sluice: .*-00003-.*Permission denied" "$D/err"
    verdict $? "a shard that may not be read"
    chmod 644 "$M/model-00003-of-000014.safetensors"
    if [ -z "$sanitized" ] && has prlimit; then
        nobody prlimit --nproc=1:1 "$S" run "$M" $ARGS -t 4 > "$D/out" \
            2> "$D/err"
        [ $? -eq 1 ] && [ ! -s "$D/out" ] && grep -q '^sluice: ' "$D/err"
        verdict $? "no more threads: a sentence"
        (ulimit -v 100000; exec "$S" run "$M" $ARGS -m 4G -c 100000) \
            > "$D/out" 2> "$D/err"
        [ $? -eq 1 ] && [ ! -s "$D/out" ] && grep -q '^sluice: ' "$D/err"
        verdict $? "no more memory: a sentence"
    else
        skip "no more threads, no more memory" "${sanitized:-no prlimit}"
    fi
else
    skip "an unprivileged user" "setpriv is missing or may not"
fi

# No machine has room for 512 sequences of 16 million positions.
echo '{"custom_id": "1", "prompt": [3]}' > "$D/in"
"$S" batch "$M" -i "$D/in" -o "$D/answers" -n 1 --sequences 512 \
    -c 16000000 -m 900000T > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && [ ! -s "$D/out" ] && [ ! -s "$D/answers" ] &&
    grep -q "^sluice: the plan takes .*the machine has .* free" "$D/err" &&
    grep -q '^hint: ' "$D/err"
verdict $? "more memory than the machine has: a sentence"

# A forecast before a batch is a convenience.
rm -f "$D/answers"
(ulimit -f 4; exec "$S" batch "$M" -i "$D/in" -o "$D/answers" -n 1 -c 64) \
    > "$D/out" 2> "$D/err" && grep -q '"error":null' "$D/answers"
verdict $? "a batch with files of at most 4 KiB"

# ---- system calls ----
traced() { # name, what is injected; then the command
    name=$1 what=$2
    shift 2
    same "$name" strace -f -qq -o /dev/null -e "inject=$what" "$@"
}
if ! has strace || ! strace -qq -o /dev/null true 2> /dev/null; then
    skip "interrupted system calls" "strace is missing or may not"
elif [ -n "$sanitized" ]; then
    skip "interrupted system calls" "$sanitized"
else
    traced "io_uring refused" io_uring_setup:error=EPERM "$S" run "$M" $ARGS
    [ "$(field method)" = pread ] && grep -q 'io_uring refused' "$D/err"
    verdict $? "and said"
    traced "no io_uring" io_uring_setup:error=ENOSYS "$S" run "$M" $ARGS
    "$S" run "$M" $ARGS --io uring > "$D/out" 2> "$D/err"
    if [ $? -eq 0 ]; then
        for when in 2+3 3+7; do
            traced "io_uring_enter interrupted, $when" \
                io_uring_enter:error=EINTR:when=$when "$S" run "$M" $ARGS \
                -m "$FLOOR"
        done
        traced "io_uring_enter busy" io_uring_enter:error=EBUSY:when=5+9 \
            "$S" run "$M" $ARGS -m "$FLOOR"
        traced "io_uring_enter short of memory" \
            io_uring_enter:error=EAGAIN:when=5+9 "$S" run "$M" $ARGS -m "$FLOOR"
        traced "registering refused" io_uring_register:error=ENOMEM \
            "$S" run "$M" $ARGS
    else
        skip "io_uring_enter interrupted" "no io_uring here"
    fi
    for error in EINTR EAGAIN; do
        traced "pread64 with $error" pread64:error=$error:when=50+50 \
            "$S" run "$M" $ARGS --io pread -m "$FLOOR"
    done
    strace -f -qq -o /dev/null -e inject=pread64:error=EIO:when=60+ "$S" run \
        "$M" $ARGS --io pread -m "$FLOOR" > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q '^sluice: .*safetensors.*Input/output' "$D/err"
    verdict $? "pread64 that fails: a sentence"
fi

# ---- signals ----
# begun COMMAND...: in the background, until its first id is there
begun() {
    : > "$D/out"
    "$@" > "$D/out" 2> "$D/err" &
    pid=$!
    while [ ! -s "$D/out" ] && kill -0 $pid 2> /dev/null; do
        read -r pause < /proc/uptime
    done
}
begun "$S" run "$M" $ARGS -m "$FLOOR" --simulate-drive 0.05
for i in $(seq 60); do
    kill -STOP $pid 2> /dev/null
    kill -CONT $pid 2> /dev/null
done
wait $pid
[ $? -eq 0 ] && [ "$(cat "$D/out")" = "$IDS" ]
verdict $? "stopped and continued"
# A pass takes a second and more at this pace.
SLOW="--ids 3 -n 50 --ignore-eos -c 64 --simulate-drive 0.005"
for signal in INT TERM; do
    status=$([ $signal = INT ] && echo 130 || echo 143)
    # The shell lets background commands ignore SIGINT; env does not.
    begun env --default-signal=INT "$S" run "$M" $SLOW -m "$FLOOR"
    kill -$signal $pid
    wait $pid
    [ $? -eq "$status" ] && grep -q '^sluice: interrupted$' "$D/err" &&
        [ "$(tail -c 1 "$D/out" | wc -l)" -eq 1 ]
    verdict $? "SIG$signal: exit $status and a whole line"
done

# ---- file systems ----
if [ -d /dev/shm ] && R=$(mktemp -d /dev/shm/sluice-XXXXXX 2> /dev/null); then
    chmod 755 "$R"
    cp -r "$M" "$R/m"
    same "a file system in memory" "$S" run "$R/m" $ARGS -m "$FLOOR"
    [ "$(field direct)" = true ] || grep -q 'O_DIRECT refused' "$D/err"
    verdict $? "direct, or said"
    cp -r "$M" "$D/two"
    for i in 2 4 6 8 10 12 14; do
        shard=$(printf 'model-%05d-of-000014.safetensors' $i)
        ln -sf "$R/m/$shard" "$D/two/$shard"
    done
    same "shards on two file systems" "$S" run "$D/two" $ARGS -m 60M
    drives=$(field drives)
    if [ "$(stat -c %d "$M")" = "$(stat -c %d "$R")" ]; then
        skip "two drives" "both are one file system"
    else
        [ "$drives" -eq 2 ]
        verdict $? "two drives"
        floor=$("$S" run "$D/two" $ARGS -m 1 2>&1 |
                sed -n 's/.*floor of \([0-9]*\) bytes.*/\1/p')
        same "at their floor" "$S" run "$D/two" $ARGS -m "$floor"
    fi
else
    skip "a file system in memory" "no /dev/shm"
fi
# Shards, each on a file system of its own, seen by nobody else.
if has unshare && unshare -rm mount -t tmpfs none "$D" 2> /dev/null; then
    for count in 64 65; do
        "$S" synth "$D/far" --preset tiny --full-attn-layers 4,8 \
            --num-hidden-layers $((count - 1)) > "$D/out" 2> "$D/err"
        rm "$D/far/tiktoken.model"
        one=$("$S" run "$D/far" $ARGS 2> "$D/err")
        cat > "$D/apart.sh" << 'SH'
i=0
mkdir -p "$1/apart" && cp "$1"/far/*.json "$1/apart" || exit 9
for shard in "$1"/far/model-*.safetensors; do
    at=$1/fs$((i += 1))
    mkdir -p "$at" && mount -t tmpfs none "$at" && cp "$shard" "$at/" &&
        ln -sf "$at/${shard##*/}" "$1/apart" || exit 9
done
shift
exec "$@"
SH
        unshare -rm sh "$D/apart.sh" "$D" "$S" run "$D/apart" $ARGS \
            > "$D/out" 2> "$D/err"
        s=$?
        if [ $count -eq 64 ]; then
            [ $s -eq 0 ] && [ "$(cat "$D/out")" = "$one" ] &&
                [ "$(field drives)" -eq 64 ] &&
                [ "$(unshare -rm sh "$D/apart.sh" "$D" "$S" doctor "$D/apart" |
                     grep -c '^ok *drive rate')" -eq 64 ]
        else
            [ $s -eq 1 ] && [ ! -s "$D/out" ] &&
                grep -q 'more than the 64 file systems' "$D/err" &&
                ! unshare -rm sh "$D/apart.sh" "$D" "$S" doctor "$D/apart" \
                    > "$D/out" 2>&1 &&
                grep -q '^fail.*more than 64 file systems' "$D/out"
        fi
        verdict $? "shards on $count file systems"
        rm -rf "$D/far" "$D/apart" "$D"/fs*
    done
else
    skip "shards on 64 and 65 file systems" "no mounts"
fi
cat > "$D/forget.py" << 'PY'
import os, sys
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
PY
cached() { # bytes of the shards in the page cache
    fincore -b -n -o RES "$M"/model-*.safetensors | awk '{ s += $1 } END { print s }'
}
if has fincore; then
    python3 "$D/forget.py" "$M"/model-*.safetensors
    before=$(cached)
    same "with nothing in the page cache" "$S" run "$M" $ARGS -m "$FLOOR"
    after=$(cached)
    echo "# cached: $before bytes before, $after after"
    if [ "$(field direct)" = true ]; then
        [ $((after - before)) -le $((14 * 131072)) ]
        verdict $? "direct reads leave the page cache alone"
    else
        skip "direct reads leave the page cache alone" "no O_DIRECT here"
    fi
else
    skip "direct reads leave the page cache alone" "no fincore"
fi

# ---- cgroups ----
for G in /sys/fs/cgroup/memory/sluice-$$ /sys/fs/cgroup/sluice-$$; do
    limit=$([ -d /sys/fs/cgroup/memory ] && echo memory.limit_in_bytes ||
            echo memory.max)
    mkdir "$G" 2> /dev/null && [ -f "$G/cgroup.procs" ] &&
        echo 629145600 2> /dev/null > "$G/$limit" && break
    rmdir "$G" 2> /dev/null
    G=
done
if [ -n "$G" ]; then
    # Fill it with page cache, which is not in the way.
    same "in a cgroup of 600 MiB" sh -c "echo \$\$ > $G/cgroup.procs &&
        truncate -s 500M $D/hole && cat $D/hole > /dev/null &&
        exec $S run $M $ARGS"
    budget=$(field budget_bytes)
    echo "# the default budget: $budget bytes"
    [ "$budget" -le 629145600 ] && [ "$budget" -ge 250000000 ]
    verdict $? "the default budget is what the group has left"
    # 16 million positions are some gigabytes of state.
    sh -c "echo \$\$ > $G/cgroup.procs &&
        exec $S run $M --ids 1 -n 1 -m 64G -c 16000000" > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && [ ! -s "$D/out" ] &&
        grep -q "^sluice: the plan takes .*the cgroup has" "$D/err"
    verdict $? "more than the group has: a sentence before anything is taken"
else
    skip "in a cgroup of 600 MiB" "none can be made"
fi
echo "1..$n"
