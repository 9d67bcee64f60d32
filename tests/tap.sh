# tap.sh - what shell tests begin with: the program as $S, a folder $D that goes
# when the test ends, and numbered verdicts. Sourced from the project's folder.
S=${BUILD:-build}/sluice
D=$(mktemp -d) || exit 1
trap 'rm -rf "$D"' EXIT
n=0
verdict() { # status name; what a command left in out and err explains a failure
    n=$((n + 1))
    [ "$1" -eq 0 ] && echo "ok $n - $2" && return
    for left in "$D/out" "$D/err"; do
        [ -f "$left" ] && sed 's/^/# /' "$left"
    done
    echo "not ok $n - $2"
}
skip() { # name why
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
