#!/bin/sh
# Run every test program and every tests/*/test_*.sh, each under a time limit.
# All of them speak TAP: "ok N - name", "not ok N - name", "... # SKIP why".
# Ends with one line: N passed, N failed, N skipped. Exit 1 if any failed.
# Usage: BUILD=build sh tests/run.sh [word in the name ...]
BUILD=${BUILD:-build}
export BUILD CMOCKA_MESSAGE_OUTPUT=TAP
LIMIT=${LIMIT:-300}
log=$BUILD/tests.log
: > "$log"
passed=0 failed=0 skipped=0
run() {
    name=$1
    shift
    out=$BUILD/tests.out
    timeout -k 5 "$LIMIT" "$@" > "$out" 2>&1 < /dev/null
    status=$?
    cat "$out" >> "$log"
    ok=$(grep -c '^ok ' "$out")
    bad=$(grep '^not ok ' "$out" | grep -vc '# SKIP')
    skip=$(grep -cE '^(not )?ok .*# SKIP' "$out")
    ok=$((ok - $(grep -cE '^ok .*# SKIP' "$out")))
    if [ $status -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1
        echo "not ok - $name: exit status $status"
    fi
    [ $((ok + bad + skip)) -eq 0 ] && bad=1 && echo "not ok - $name: ran no test"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    printf '%-44s %3d ok %s%s\n' "$name" "$ok" \
        "$([ "$bad" -gt 0 ] && echo "$bad FAILED ")" \
        "$([ "$skip" -gt 0 ] && echo "$skip skipped")"
    [ "$bad" -gt 0 ] && tail -n 40 "$out"
    grep '# SKIP' "$out"
}
wanted() {
    [ $# -eq 1 ] && return 0
    file=$1
    shift
    for word; do case $file in *$word*) return 0 ;; esac; done
    return 1
}
for t in tests/*/test_*.c tests/*/fuzz_*.c; do
    [ -f "$t" ] && wanted "$t" "$@" && run "$t" "$BUILD/${t%.c}"
done
for t in tests/*/test_*.sh; do
    [ -f "$t" ] && wanted "$t" "$@" && run "$t" sh "$t"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
