#!/bin/sh
# Goal    a download that is not over is not taken for a model, whatever the
#         sizes of its files; what cannot be read is not downloaded again; each
#         fix that is named fits.
# Method  a model of synth whose config does not say so, spoilt in the ways of
#         downloaders: zeros in a file of full length, control files, a cache's
#         layout, pages in the place of files, no permission.
. tests/tap.sh
M=$D/m
# doctor STATUS NAME PATTERN...: these lines
doctor() {
    want=$1 name=$2
    shift 2
    "$S" doctor "$M" > "$D/out" 2> "$D/err"
    [ $? -eq "$want" ]
    s=$?
    for pattern; do
        grep -q -- "$pattern" "$D/out" || { echo "# no $pattern" && s=1; }
    done
    verdict $s "$name"
}
fresh() { rm -rf "$M" && cp -r "$D/tiny" "$M"; }
"$S" synth "$D/tiny" --preset tiny > /dev/null 2>&1 || exit 1
cp -r "$D/tiny" "$D/synthetic"
sed -i 's/sluice-synth/somebody/' "$D/tiny/config.json"
shard=model-00003-of-000014.safetensors

fresh
doctor 0 "a whole one" '^ok    shards'
"$S" run "$M" --ids 1 -n 1 > "$D/out" 2> "$D/err" &&
    ! grep -q 'download\|zeros' "$D/err"
verdict $? "run says nothing of it"
for ending in aria2 part incomplete crdownload '!qB'; do
    fresh
    : > "$M/$shard.$ending"
    doctor 1 "a control file, .$ending" \
        "^fail  shards .*$shard (its download has not ended: .*.$ending"
    "$S" run "$M" --ids 1 -n 1 > "$D/out" 2> "$D/err" &&
        grep -q "^sluice: $M/$shard.$ending is there: a download has" "$D/err"
    verdict $? "run warns of it"
done
fresh
mkdir -p "$M/.cache/huggingface/download"
: > "$M/.cache/huggingface/download/x.1234.incomplete"
doctor 0 "a control file of the hub's client" '^warn  download .*x.1234.incomplete'

fresh
big=$(ls -S "$M"/*.safetensors | head -n 1)
size=$(stat -c %s "$big")
python3 - "$big" << 'PY'
import os, struct, sys
path = sys.argv[1]
size = os.path.getsize(path)
with open(path, "r+b") as f:
    n, = struct.unpack("<Q", f.read(8))
    f.seek(8 + n)
    f.write(bytes(size - 8 - n - 4096))
PY
doctor 1 "zeros in a file of full length ($size)" \
    "^fail  shards .*64 KiB of zeros at [0-9]*, never written" \
    '^next: hf download'
"$S" run "$M" --ids 1 -n 1 > "$D/out" 2> "$D/err"
grep -q "^sluice: .*64 KiB of zeros at .* ever written" "$D/err"
verdict $? "run warns of them"
sed -i 's/somebody/sluice-synth/' "$M/config.json"
doctor 0 "zeros that synth left" '^warn  shards .*synth left them empty'

rm -rf "$M" && cp -r "$D/synthetic" "$M" && rm "$M/$shard"
"$S" doctor "$M" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && ! grep -q 'hf download' "$D/out" &&
    grep -q 'synth DIR .*nowhere to be downloaded' "$D/out"
verdict $? "a synthetic model is not to be downloaded"

rm -rf "$M" && mkdir -p "$M/snapshots" && cp -r "$D/tiny" "$M/snapshots/0123ab"
doctor 1 "a model in a hub cache: its snapshot is named" \
    "^fail  config .*has no config.json; $M/snapshots/0123ab has one" \
    "^next: .*doctor '$M/snapshots/0123ab'"
"$S" run "$M" --ids 1 -n 1 > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "$M/snapshots/0123ab has one: give that" "$D/err"
verdict $? "run names it too"
"$S" verify "$M" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "$M/snapshots/0123ab has one: give that" "$D/out"
verdict $? "verify names it too"

fresh
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:1\n' > "$M/$shard"
doctor 1 "an LFS pointer" "$shard: is a Git LFS pointer"
"$S" run "$M" --ids 1 -n 1 > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "$shard: is a Git LFS pointer" "$D/err"
verdict $? "run names it"
echo '<!DOCTYPE html><html><body>404</body></html>' > "$M/config.json"
doctor 1 "an HTML page for a config" "^fail  config .*is an HTML page"
echo '{"error":"Entry not found"}' > "$M/config.json"
doctor 1 "a JSON message for a config" "^fail  config .*is a JSON error message"

if [ "$(id -u)" = 0 ] && chmod 755 "$D" &&
    setpriv --reuid=65534 --regid=65534 --clear-groups "$S" --version \
        > /dev/null 2>&1; then
    fresh
    chmod 600 "$M/$shard"
    setpriv --reuid=65534 --regid=65534 --clear-groups "$S" doctor "$M" \
        > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q "$shard (Permission denied)" "$D/out" &&
        grep -q "^next: chmod u+r '$M/$shard'" "$D/out" &&
        ! grep -q 'damaged; \|hf download' "$D/out"
    verdict $? "no permission: chmod, and nothing to download"
else
    skip "no permission: chmod, and nothing to download" "needs root"
fi
echo 1..$n
