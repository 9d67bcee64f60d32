#!/bin/sh
# Run every test program and every tests/*/test_*.sh, each under a time limit,
# JOBS at a time. All of them speak TAP: "ok N - name", "not ok N - name",
# "... # SKIP why". A test with the word "Alone:" in its text measures memory
# or time, and runs when no other does.
# Ends with one line: N passed, N failed, N skipped. Exit 1 if any failed.
# Usage: BUILD=build JOBS=3 sh tests/run.sh [--times] [word in the name ...]
# ALL=yes gives programs the word "all": every place, not some of them.
#   --times   then the ten that took longest: seconds, CPU seconds, the test
BUILD=${BUILD:-build} LIMIT=${LIMIT:-300} JOBS=${JOBS:-3}
export BUILD LIMIT CMOCKA_MESSAGE_OUTPUT=TAP
results=$BUILD/results # NAME.out is what a test printed, NAME.sum its sums

now() { # seconds since the machine started, in $seconds
    read -r seconds rest < /proc/uptime
}
# one FILE: run it, say its verdict in one piece, leave its sums
one() {
    name=$(echo "${1#tests/}" | tr / -)
    out=$results/$name.out
    case $1 in
    *.c) set -- "$1" "$BUILD/${1%.c}" ${ALL:+all} ;;
    *) set -- "$1" sh "$1" ;;
    esac
    file=$1
    shift
    now && began=$seconds
    timeout -k 5 "$LIMIT" "$@" > "$out" 2>&1 < /dev/null
    status=$?
    times > "$results/$name.cpu" # of the shell, then of its children
    now
    skip=$(grep -cE '^(not )?ok .*# SKIP' "$out")
    bad=$(grep '^not ok ' "$out" | grep -vc '# SKIP')
    ok=$(($(grep -c '^ok ' "$out") - $(grep -cE '^ok .*# SKIP' "$out")))
    # "1..N" says how many there have to be; a program may run several groups.
    planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$out" |
              awk '{ n += $1 } END { print n + 0 }')
    why=
    if [ $status -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1 why="exit status $status"
    elif [ $((ok + bad + skip)) -eq 0 ]; then
        bad=1 why="ran no test"
    elif [ "$planned" -ne $((ok + bad + skip)) ]; then
        bad=$((bad + 1)) why="ran $((ok + bad - 1 + skip)) of $planned tests"
    fi
    echo "$ok $bad $skip" \
        "$(sed -n 's/s//g; 2p' "$results/$name.cpu" | tr m ' ' |
           awk -v a="$began" -v b="$seconds" \
               '{ printf "%.1f %.1f", b - a, 60 * ($1 + $3) + $2 + $4 }')" \
        "$file" > "$results/$name.sum"
    {
        printf '%-44s %3d ok %s%s\n' "$file" "$ok" \
            "$([ "$bad" -gt 0 ] && echo "$bad FAILED ")" \
            "$([ "$skip" -gt 0 ] && echo "$skip skipped")"
        [ -n "$why" ] && echo "not ok - $file: $why"
        [ "$bad" -gt 0 ] && tail -n 40 "$out"
        grep '# SKIP\|^# left out: ' "$out"
    } > "$results/$name.said"
    flock "$results/lock" cat "$results/$name.said"
}
if [ "$1" = --one ]; then
    one "$2"
    exit 0
fi

slowest=false
[ "$1" = --times ] && slowest=true && shift
rm -rf "$results" && mkdir -p "$results" || exit 1
wanted() { # FILE word...
    file=$1
    shift
    [ $# -eq 0 ] && return 0
    for word; do case $file in *$word*) return 0 ;; esac; done
    return 1
}
mpi= # only when asked for: they need a build of their own
case "$*" in *mpi/mpi_*) mpi='tests/mpi/mpi_*.sh' ;; esac
for t in tests/*/test_*.sh tests/*/test_*.c tests/*/fuzz_*.c $mpi; do
    [ -f "$t" ] && wanted "$t" "$@" || continue
    if grep -q 'Alone:' "$t"; then
        echo "$t" >> "$results/alone"
    else
        echo "$t" >> "$results/beside"
    fi
done
: >> "$results/alone" >> "$results/beside"
xargs -r -n 1 -P "$JOBS" sh tests/run.sh --one < "$results/beside"
xargs -r -n 1 sh tests/run.sh --one < "$results/alone"
cat "$results"/*.out > "$BUILD/tests.log" 2> /dev/null
cat "$results"/*.sum > "$results/all" 2> /dev/null
ran=$(wc -l < "$results/all")
chosen=$(cat "$results/beside" "$results/alone" | wc -l)
if $slowest; then
    echo "seconds, CPU seconds, the ten slowest:"
    sort -k 4,4nr "$results/all" | head -n 10 |
        awk '{ printf "%7.1f %7.1f  %s\n", $4, $5, $6 }'
    awk '{ w += $4; c += $5 }
        END { printf "%7.1f %7.1f  all of them\n", w, c }' "$results/all"
fi
# A test that left no sums is a failure, too.
awk -v lost=$((chosen - ran)) '{ ok += $1; bad += $2; skip += $3 }
    END { printf "%d passed, %d failed, %d skipped\n", ok, bad + lost, skip
          exit !(ok > 0 && bad + lost == 0) }' "$results/all"
