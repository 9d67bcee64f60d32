#!/bin/sh
# Goal    sluice verify tells everything that is wrong with a folder, a line
#         each with file and tensor, and exits 1; else it exits 0.
#         What its download left is compared; what was found sound is not read
#         twice; the memory is kept.
# Method  a tiny checkpoint, spoilt in one way after the other: bits flipped
#         anywhere, zeros in every dtype and across tensors, pages in the place
#         of files; sums in the ways that a download leaves them.
. tests/tap.sh
M=$D/m
fresh() {
    rm -rf "$M" && cp -r "$D/tiny" "$M"
}
# finds NAME PROBLEMS PATTERN...: exit 1, so many problems, these lines
finds() {
    name=$1 problems=$2
    shift 2
    "$S" verify "$M" > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q "; $problems problem" "$D/out" &&
        grep -q "^sluice: .*$problems problems* found" "$D/err"
    s=$?
    for pattern; do
        grep -q -- "$pattern" "$D/out" || { echo "# no $pattern" && s=1; }
    done
    verdict $s "$name"
}

"$S" synth "$D/tiny" --preset tiny > /dev/null 2>&1 || exit 1
fresh
"$S" verify "$M" > "$D/out" 2> "$D/err" && [ ! -s "$D/err" ] &&
    grep -q "^14 files, .* no problems$" "$D/out"
verdict $? "a sound checkpoint"
"$S" verify "$M" --json --io pread -t 1 > "$D/out" 2> "$D/err" &&
    grep -q '"problem_count": 0' "$D/out" && [ ! -s "$D/err" ]
verdict $? "as JSON, by another method"

rm "$M"/model-00002-of-* "$M"/model-00007-of-*
finds "missing shards" 2 "model-00002-of-000014.safetensors is missing" \
    "model-00007-of-000014.safetensors is missing"
fresh
truncate -s -1 "$M/model-00003-of-000014.safetensors"
printf x >> "$M/model-00004-of-000014.safetensors"
rm "$M/model.safetensors.index.json"
finds "a truncated shard and a long one" 2 "model-00003.*truncated or damaged" \
    "model-00004.*: has [0-9]* bytes, its tensors end at"
fresh
python3 - "$M" << 'PY'
import json, sys
path = sys.argv[1] + "/model.safetensors.index.json"
m = json.load(open(path))
w = m["weight_map"]
w["language_model.lm_head.weight"] = "model-00001-of-000014.safetensors"
w["language_model.nothing.weight"] = "model-00001-of-000014.safetensors"
del w["language_model.model.norm.weight"]
for i in range(20):
    w["vision%d" % i] = "vision.safetensors"
json.dump(m, open(path, "w"))
PY
finds "an index of something else" 11 \
    "index.json: names 13 more tensors" \
    "model-00014.*tensor language_model.lm_head.weight: is in model-00001" \
    "tensor [a-z0-9_.]*: should be in [a-z0-9-]*.safetensors and is not" \
    "tensor language_model.model.norm.weight: is not in model.safetensors"
echo '{' > "$M/model.safetensors.index.json"
finds "an index that is none" 1 "index.json: is not JSON"
fresh
python3 - "$M" << 'PY'
import json, struct, sys
path = sys.argv[1] + "/model-00014-of-000014.safetensors"
b = bytearray(open(path, "rb").read())
n, = struct.unpack("<Q", b[:8])
h = json.loads(b[8:8 + n])
begin, end = h["language_model.lm_head.weight"]["data_offsets"]
b[8 + n + begin:8 + n + end] = bytes(end - begin)
open(path, "wb").write(b)
PY
finds "a matrix of zeros" 1 \
    "tensor language_model.lm_head.weight: \([0-9]*\) of its \1 bytes are zero"
fresh
rm "$M/tiktoken.model"
finds "no tokenizer" 1 "tiktoken.model: No such file"
fresh
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 1000/' "$M/config.json"
finds "a config of another vocabulary" 2 "tiktoken.model: 768 ids" \
    "by the config \[1000"
rm "$M"/*.safetensors
finds "no shards" 2 "has no \*.safetensors file"
"$S" verify "$D/nowhere" > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q "^sluice: $D/nowhere: No such file" "$D/err"
verdict $? "no such folder"
"$S" verify > "$D/out" 2> "$D/err"
[ $? -eq 2 ] && grep -q "needs the folder" "$D/err"
verdict $? "no folder"
"$S" verify "$M" --io nfs > "$D/out" 2> "$D/err"
[ $? -eq 2 ]
verdict $? "no such method"

# ---- digests ----
sums() { (cd "$M" && sha256sum model-*.safetensors tiktoken.model > SHA256SUMS); }
fresh
sums
"$S" verify "$M" > "$D/out" 2> "$D/err" &&
    grep -q '^14 files, .* 15 digests compared; no problem' "$D/out"
verdict $? "SHA256SUMS that agree"
cat > "$D/flip.py" << 'PY'
import glob, os, random, sys
random.seed(int(sys.argv[2]))
path = random.choice(sorted(glob.glob(sys.argv[1] + "/*.safetensors")))
at, bit = random.randrange(os.path.getsize(path)), random.randrange(8)
if at < 8: # the length of the header is another kind of damage
    at = 8 + at
st = os.stat(path)
with open(path, "r+b") as f:
    f.seek(at)
    byte = f.read(1)[0]
    f.seek(at)
    f.write(bytes([byte ^ 1 << bit]))
os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
print(os.path.basename(path), at)
PY
s=0
for seed in 1 2 3 4 5 6 7 8 9 10 11 12; do
    fresh
    sums
    "$S" verify "$M" > "$D/out" 2> "$D/err" || s=1 # the list has it now
    where=$(python3 "$D/flip.py" "$M" $seed)
    "$S" verify "$M" --again > "$D/out" 2> "$D/err"
    if [ $? -ne 1 ] || ! grep -q "${where% *}" "$D/out"; then
        echo "# not found: $where" && s=1
    fi
done
verdict $s "one flipped bit, anywhere, with the times as before"
fresh
mkdir -p "$M/.cache/huggingface/download"
for f in "$M"/model-*; do
    printf 'rev\n%s\n1.5\n' "$(sha256sum < "$f" | cut -c-64)" \
        > "$M/.cache/huggingface/download/${f##*/}.metadata"
done
git_name() { # the name of a blob
    { printf 'blob %d\0' "$(stat -c %s "$1")" && cat "$1"; } | sha1sum | cut -c-40
}
printf 'rev\n"%s"\n1.5\n' "$(git_name "$M/config.json")" \
    > "$M/.cache/huggingface/download/config.json.metadata"
"$S" verify "$M" > "$D/out" 2> "$D/err" &&
    grep -q ' 15 digests compared; no problem' "$D/out"
verdict $? "metadata of the hub's client that agree"
cp "$M/model-00002-of-000014.safetensors" "$D/two"
printf '\001' | dd of="$M/model-00002-of-000014.safetensors" bs=1 seek=99990 \
    conv=notrunc 2> /dev/null
echo ' ' >> "$M/config.json"
finds "files that are not those of the metadata" 2 \
    "model-00002-of-000014.safetensors: its SHA-256 is [0-9a-f]*..., by the" \
    "config.json: its digest is"
rm -rf "$M" "$D/hub"
mkdir -p "$D/hub/blobs" "$D/hub/snapshots/rev"
for f in "$D"/tiny/*; do
    case $f in
    *.safetensors) name=$(sha256sum < "$f" | cut -c-64) ;;
    *) name=$(git_name "$f") ;;
    esac
    cp "$f" "$D/hub/blobs/$name"
    ln -s "../../blobs/$name" "$D/hub/snapshots/rev/${f##*/}"
done
"$S" verify "$D/hub/snapshots/rev" > "$D/out" 2> "$D/err" &&
    grep -q '^14 files, .* 1[89] digests compared; no problem' "$D/out"
verdict $? "a hub cache, whose blobs are named by their digest"

# ---- zeros ----
cat > "$D/zeros.py" << 'PY'
# zeros.py FOLDER DTYPE OFFSET BYTES: zeros in a tensor large enough
import glob, json, os, struct, sys
folder, dtype, skip, size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
for path in sorted(glob.glob(folder + "/model-*.safetensors")):
    with open(path, "r+b") as f:
        n, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        for name, e in sorted(header.items()):
            if e.get("dtype") != dtype or name == "__metadata__":
                continue
            begin, end = e["data_offsets"]
            if dtype != "F32" and end - begin < skip + size:
                continue
            f.seek(8 + n + begin + skip)
            if dtype == "F32": # all in a row, at the beginning of the file
                end = max(x["data_offsets"][1] for x in header.values()
                          if x.get("dtype") == "F32")
                if end - begin < skip + size:
                    continue
            f.write(bytes(size))
            sys.exit(print(name))
sys.exit("no such tensor")
PY
K=$D/small
"$S" synth "$K" --preset small --seed 3 --num-hidden-layers 2 \
    --num-experts 16 --vocab-size 1024 > "$D/out" 2>&1 || exit 1
for at in 'BF16 0' 'BF16 1000001' 'BF16 1040000' 'U8 0' 'U8 7'; do
    rm -rf "$M"
    mkdir "$M" && cp -r "$K"/. "$M"
    name=$(python3 "$D/zeros.py" "$M" $at 65536 2>&1) || {
        skip "64 KiB of zeros, $at" "$name"
        continue
    }
    finds "64 KiB of zeros, $at" 1 "tensor $name: 6553[67] of its [0-9]* bytes"
done
rm -rf "$K"
cat > "$D/one.py" << 'PY'
# one.py FILE DTYPE BYTES: a shard of one tensor, with 64 KiB of zeros in it
import json, random, struct, sys
path, dtype, width = sys.argv[1], sys.argv[2], int(sys.argv[3])
size = 300000 // width * width
data = bytearray(random.Random(1).choices(range(1, 120), k=size))
at = random.Random(width).randrange(size - 65536)
data[at:at + 65536] = bytes(65536)
header = json.dumps({"t": {"dtype": dtype, "shape": [size // width],
                           "data_offsets": [0, size]}}).encode()
open(path, "wb").write(struct.pack("<Q", len(header)) + header + data)
PY
rm -rf "$M" && mkdir "$M" && s=0
for dtype in 'BF16 2' 'F32 4' 'U8 1'; do
    python3 "$D/one.py" "$M/model.safetensors" $dtype
    "$S" verify "$M" > "$D/out" 2> "$D/err"
    grep -q "tensor t: 65536 of its [0-9]* bytes are zero" "$D/out" ||
        { echo "# not in $dtype" && s=1; }
done
verdict $s "64 KiB of zeros in every dtype"
fresh
python3 - "$M" << 'PY'
# 70,000 zeros over as many small tensors as that takes
import json, struct, sys
with open(sys.argv[1] + "/model-00004-of-000014.safetensors", "r+b") as f:
    n, = struct.unpack("<Q", f.read(8))
    f.seek(8 + n + 5)
    f.write(bytes(70000))
PY
finds "zeros over many tensors" 1 "bytes are zero in long runs; so are"
fresh
python3 "$D/zeros.py" "$M" BF16 0 65536 > /dev/null
sums
"$S" verify "$M" > "$D/out" 2> "$D/err"
verdict $? "zeros that were published so"

# ---- what was read before ----
fresh
"$S" verify "$M" > /dev/null 2>&1
"$S" verify "$M" > "$D/out" 2> "$D/err" &&
    grep -q '^0 files, .* 14 files unchanged' "$D/out"
verdict $? "nothing is read twice"
sed -i '/model-0000[1-4]/d; $s/..$//' "$M/.sluice-verified"
"$S" verify "$M" > "$D/out" 2> "$D/err" &&
    grep -q '^5 files, .* 9 files unchanged' "$D/out" &&
    "$S" verify "$M" | grep -q '^0 files'
verdict $? "a list that was cut off goes on"
touch "$M/model-00003-of-000014.safetensors"
printf '\177\177' | dd of="$M/model-00005-of-000014.safetensors" bs=1 \
    seek=8 conv=notrunc 2> /dev/null
"$S" verify "$M" > "$D/out" 2> "$D/err"
grep -q '^1 file, .* 12 files unchanged' "$D/out"
verdict $? "what changed is read again"
fresh
echo 'my notes' > "$M/.sluice-verified"
"$S" verify "$M" > "$D/out" 2> "$D/err" && grep -q 'cannot be continued' \
    "$D/err" && [ "$(cat "$M/.sluice-verified")" = 'my notes' ]
verdict $? "a file of somebody else is left alone"
ln -sf "$D/elsewhere" "$M/.sluice-verified"
"$S" verify "$M" > "$D/out" 2> "$D/err" && [ ! -e "$D/elsewhere" ]
verdict $? "nothing is written through a link"

# ---- pages in the place of files; files that cannot be read ----
fresh
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:12\n' \
    > "$M/model-00001-of-000014.safetensors"
printf '<!DOCTYPE html><html>404' > "$M/model-00002-of-000014.safetensors"
printf '{"error":"Repository not found"}' > "$M/model-00003-of-000014.safetensors"
rm "$M/model.safetensors.index.json"
finds "pages in the place of shards" 3 "model-00001.*is a Git LFS pointer" \
    "model-00002.*is an HTML page" "model-00003.*is a JSON error message"
if [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --regid=65534 --clear-groups \
    "$S" --version > /dev/null 2>&1; then
    fresh
    chmod 755 "$D" "$M"
    chmod 600 "$M/model-00001-of-000014.safetensors"
    setpriv --reuid=65534 --regid=65534 --clear-groups "$S" verify "$M" \
        > "$D/out" 2> "$D/err"
    [ $? -eq 1 ] && grep -q 'model-00001.*Permission denied; it may be whole: chmod' \
        "$D/out"
    verdict $? "a file that may not be read is not damaged"
else
    skip "a file that may not be read is not damaged" "needs root"
fi

# ---- memory ----
fresh
"$S" verify "$M" -m 10M > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'takes [0-9]* bytes of memory at least' "$D/err"
verdict $? "too little memory is refused with what it takes"
floor=$(sed -n 's/.*takes \([0-9]*\) bytes.*/\1/p' "$D/err")
if grep -q fsanitize "${BUILD:-build}/flags"; then
    skip "verify stays below its memory" "a sanitizer needs its own"
else
    python3 - "$S" "$M" "$floor" << 'PY'
import resource, subprocess, sys
subprocess.run([sys.argv[1], "verify", sys.argv[2], "--again", "-m",
                sys.argv[3]], check=True, stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print("#", peak, "of", sys.argv[3])
sys.exit(peak > int(sys.argv[3]))
PY
    verdict $? "verify stays below its memory"
fi
"$S" pack "$M" > "$D/out" 2>&1
"$S" verify "$M" -m 10M > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q '^hint: give it more with --memory$' "$D/err"
verdict $? "with coded weights, too; the hint has only its own options"
floor=$(sed -n 's/.*takes \([0-9]*\) bytes.*/\1/p' "$D/err")
if grep -q fsanitize "${BUILD:-build}/flags"; then
    skip "verify of coded weights stays below it" "a sanitizer needs its own"
else
    python3 - "$S" "$M" "$floor" << 'PY'
import resource, subprocess, sys
out = subprocess.run([sys.argv[1], "verify", sys.argv[2], "--again", "-t", "64",
                      "-m", sys.argv[3], "--packed", "require"], check=True,
                     stdout=subprocess.PIPE).stdout
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print("#", peak, "of", sys.argv[3])
sys.exit(peak > int(sys.argv[3]) or b"14 coded files decoded" not in out)
PY
    verdict $? "verify of coded weights stays below it, with 64 threads"
fi
echo "1..$n"
