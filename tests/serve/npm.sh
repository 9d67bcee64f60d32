# npm.sh - the packages of package-lock.json in the build folder; sourced after
# tap.sh. `left_out WHY` skips the whole test.
npm=$PWD/${BUILD:-build}/npm
case $BUILD in /*) npm=$BUILD/npm ;; esac
left_out() { # why
    echo "1..1"
    skip "$what" "$1"
    exit 0
}
command -v npm > /dev/null || left_out "no npm"
mkdir -p "$npm"
exec 8> "$npm/lock" # one test at a time installs
flock 8
if ! cmp -s tests/serve/package-lock.json "$npm/done"; then
    cp tests/serve/package.json tests/serve/package-lock.json "$npm"
    (cd "$npm" && timeout 200 npm ci --no-audit --no-fund) > "$D/npm" 2>&1 ||
        left_out "npm is not reachable: $(tail -n 1 "$D/npm")"
    cp tests/serve/package-lock.json "$npm/done"
fi
flock -u 8
PATH=$npm/node_modules/.bin:$PATH
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
echo secret > "$D/keys"
chmod 600 "$D/keys"
