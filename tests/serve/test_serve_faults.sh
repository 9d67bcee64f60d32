#!/bin/sh
# Goal    A drive that is full, weights that are gone, clients that send a byte
#         now and then or hold what they opened: one sentence for who is
#         concerned, and the others are served. Pages of other sites get in by
#         --cors alone. A service manager may give the socket and hears when it
#         is listened to. Every command of the manual works as it stands there.
# Method  a small random checkpoint, a file system of 256 KiB where mounting is
#         allowed, sockets, curl: cases_faults.py.
. tests/tap.sh
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/serve/cases_faults.py "$S" "$D"
umount -l "$D/small" 2> "$D/out"
exit 0
