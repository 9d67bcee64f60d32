#!/bin/sh
# Goal    sluice doctor is right about machines and folders of all kinds, and
#         its last line is the next thing to type.
# Method  a tiny model in good and bad states, on file systems made for the
#         purpose, under limits set for the purpose; in a mount namespace of its
#         own, so that nothing stays mounted whatever happens.
if [ -z "$DOCTOR_NAMESPACE" ] && unshare -m true 2> /dev/null; then
    DOCTOR_NAMESPACE=yes exec unshare -m sh "$0"
fi
S=$(realpath "${BUILD:-build}")/sluice
HERE=$(dirname "$0")
D=$(mktemp -d) || exit 1
CGROUP=
finish() {
    cd / && umount -l "$D"/mnt/* 2> /dev/null
    [ -z "$CGROUP" ] || rmdir "$CGROUP"
    rm -rf "$D"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP
chmod 755 "$D"
n=0
verdict() { # status name
    n=$((n + 1))
    [ "$1" -eq 0 ] && echo "ok $n - $2" && return
    sed 's/^/# /' "$D/out"
    echo "not ok $n - $2"
}
skip() { # name why
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
# says NAME STATUS PATTERN... -- command...: every pattern is a line of stdout
says() {
    name=$1 status=$2 s=0
    : > "$D/patterns"
    shift 2
    while [ "$1" != -- ]; do
        printf '%s\n' "$1" >> "$D/patterns"
        shift
    done
    shift
    "$@" > "$D/out" 2> "$D/err"
    [ $? -eq "$status" ] && [ ! -s "$D/err" ] || s=1
    while read -r pattern; do
        grep -q -- "$pattern" "$D/out" || { echo "# no $pattern" && s=1; }
    done < "$D/patterns"
    tail -n 1 "$D/out" | grep -q '^next: ' || s=1
    verdict $s "$name"
}
tiny() { # DIR: a tiny model there
    cp -r "$D/tiny/." "$1" && chmod -R a+rX "$1"
}
# mounted NAME: may we mount, and is $D/mnt/NAME there
mounted() {
    [ -n "$DOCTOR_NAMESPACE" ] && [ "$(id -u)" = 0 ] && mkdir -p "$D/mnt/$1"
}
# image NAME SIZE OPTION...: a loop device on a file of that size, in $loop
image() {
    file=$D/$1.img size=$2
    shift 2
    truncate -s "$size" "$file" && loop=$(losetup -f --show "$@" "$file")
}
# Mounted or not, the device goes when its last user does: the kernel closes
# the files of a ring a little after the process, so every umount is lazy.
mount_loop() { # TYPE NAME
    mount -t "$1" "$loop" "$D/mnt/$2" 2> "$D/err"
    mount_status=$?
    losetup -d "$loop"
    return $mount_status
}

"$S" synth "$D/tiny" --preset tiny > /dev/null 2>&1 || exit 1
sed -i s/sluice-synth/somebody/ "$D/tiny/config.json" # or none is downloaded
says "a whole model" 0 "^ok    shards       all" "^ok    config" \
    "^ok    tokenizer" "^ok    floor" "^next: .*sluice run $D/tiny -m .* -p" \
    -- "$S" doctor "$D/tiny"
says "no model" 0 "^ok    kernel" "^next: .*sluice synth" -- "$S" doctor
"$S" doctor "$D/tiny" --json > "$D/out" && python3 - "$D/out" << 'PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["fail"] == 0 and "sluice run" in d["next"]
assert {c["verdict"] for c in d["checks"]} <= {"ok", "warn"}
assert all(c["name"] and c["text"] for c in d["checks"])
PY
verdict $? "as JSON"

mkdir "$D/some" && tiny "$D/some"
rm "$D"/some/model-00003-of-*
says "a missing shard" 1 \
    "^fail  shards       1 of .*model-00003-of-0000.*(missing)" \
    "^next: hf download .*--include 'model-00003" -- "$S" doctor "$D/some"
tiny "$D/some"
cp "$D/tiny/tokenizer_config.json" "$D/some/model-00002-of-000014.safetensors"
truncate -s -1 "$D/some/model-00004-of-000014.safetensors"
truncate -s 100 "$D/some/model-00005-of-000014.safetensors"
says "damaged and truncated shards" 1 \
    "3 of 14 .*model-00002.*(damaged), model-00004.*([0-9]* of [0-9]* bytes)" \
    -- "$S" doctor "$D/some"
rm "$D"/some/*.safetensors
says "only a config" 1 "^ok    config" "^fail  shards       none is here" \
    "^next: hf download" -- "$S" doctor "$D/some"
rm "$D/some/tiktoken.model"
echo '{' > "$D/some/config.json"
says "a config that is none" 1 "^fail  config" -- "$S" doctor "$D/some"
says "no such folder" 1 "^fail  folder" "^next: find ~ -name" \
    -- "$S" doctor "$D/nowhere"
"$S" doctor a b > /dev/null 2>&1
[ $? -eq 2 ]
verdict $? "one word too many"

python3 "$HERE/seccomp.py" true
if [ $? -eq 77 ]; then
    skip "io_uring refused" "no seccomp"
else
    says "io_uring refused by seccomp" 0 \
        "^warn  io_uring .*seccomp filter" "fix: docker run --security-opt" \
        "^next: .*sluice run" -- \
        python3 "$HERE/seccomp.py" "$S" doctor "$D/tiny"
fi
if [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --regid=65534 --clear-groups \
    prlimit --memlock=65536 "$S" --version > /dev/null 2>&1; then
    says "64 KiB of locked memory" 0 "^warn  memlock .*limit of 64 KiB" \
        "fix: ulimit -l unlimited" -- setpriv --reuid=65534 --regid=65534 \
        --clear-groups prlimit --memlock=65536 "$S" doctor "$D/tiny"
else
    skip "64 KiB of locked memory" "needs root"
fi

if mounted tmpfs && mount -t tmpfs -o size=32m none "$D/mnt/tmpfs"; then
    tiny "$D/mnt/tmpfs"
    says "tmpfs" 0 "^warn  file system .*on tmpfs, which is memory" -- \
        "$S" doctor "$D/mnt/tmpfs"
    dd if=/dev/zero of="$D/mnt/tmpfs/fill" bs=1M > /dev/null 2>&1
    says "a full disk" 0 "^warn  free space   0 GB" -- \
        "$S" doctor "$D/mnt/tmpfs"
    truncate -s 5000 "$D"/mnt/tmpfs/model-00001-of-*
    dd if=/dev/zero of="$D/mnt/tmpfs/fill2" bs=1M > /dev/null 2>&1
    says "a disk too full for the rest" 1 "^fail  free space .*still to be downloaded" \
        "^next: df -h" -- "$S" doctor "$D/mnt/tmpfs"
else
    skip "tmpfs and a full disk" "cannot mount"
fi
mkdir "$D/up"
if mounted overlay && mount -t tmpfs none "$D/up" &&
    mkdir "$D/up/u" "$D/up/w" && mount -t overlay \
        -o "lowerdir=$D/tiny,upperdir=$D/up/u,workdir=$D/up/w" none \
        "$D/mnt/overlay" 2> "$D/err"; then
    says "overlay" 0 "^warn  file system .*on overlay" -- \
        "$S" doctor "$D/mnt/overlay"
    umount -l "$D/mnt/overlay"
else
    skip "overlay" "cannot mount"
fi
umount -l "$D/up" 2> /dev/null
for type in xfs btrfs; do
    if ! command -v mkfs.$type > /dev/null; then
        skip "$type on a loop device" "no mkfs.$type"
    elif mounted $type && image $type 320M &&
        mkfs.$type -q "$loop" > /dev/null 2>&1 && mount_loop $type $type; then
        tiny "$D/mnt/$type"
        says "$type on a loop device" 0 \
            "^warn  file system .*on $type on the loop device" \
            "fix: sudo losetup --direct-io=on" "^ok    direct reads" -- \
            "$S" doctor "$D/mnt/$type"
        umount -l "$D/mnt/$type"
    else
        skip "$type on a loop device" "cannot mount"
    fi
done
if mounted sector && image sector 32M -b 4096 &&
    mkfs.ext4 -q "$loop" > /dev/null && mount_loop ext4 sector; then
    tiny "$D/mnt/sector"
    says "a drive of 4096-byte sectors" 0 \
        "^ok    direct reads .*aligned to 4096 bytes" -- \
        "$S" doctor "$D/mnt/sector"
    umount -l "$D/mnt/sector"
else
    skip "a drive of 4096-byte sectors" "cannot mount"
fi

if [ -w /sys/fs/cgroup/memory/cgroup.procs ] &&
    mkdir "/sys/fs/cgroup/memory/sluice-$$" 2> /dev/null; then
    CGROUP=/sys/fs/cgroup/memory/sluice-$$ limit=memory.limit_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2> /dev/null &&
    mkdir "/sys/fs/cgroup/sluice-$$" 2> /dev/null; then
    CGROUP=/sys/fs/cgroup/sluice-$$ limit=memory.max
fi
if [ -n "$CGROUP" ] && echo 1073741824 2> /dev/null > "$CGROUP/$limit"; then
    says "a cgroup of 1 GiB" 0 \
        "^ok    memory .*its cgroup allows [01].[0-9]* GiB" -- sh -c "echo \$\$ > $CGROUP/cgroup.procs; exec $S doctor $D/tiny"
    "$S" synth "$D/k3" --preset k3 --sparse > "$D/out" 2>&1 || exit 1
    rm "$D"/k3/*.safetensors
    says "a cgroup below the floor of K3" 1 \
        "^fail  floor        a run needs 1.* GiB" "fix: free -h; raise" -- \
        sh -c "echo \$\$ > $CGROUP/cgroup.procs; exec $S doctor $D/k3"
else
    skip "a cgroup of 1 GiB" "no cgroup of memory to make"
fi
echo "1..$n"
