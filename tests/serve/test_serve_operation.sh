#!/bin/sh
# Goal    Keys, limits and floods: nobody gets in who may not, nobody stops the
#         others. Files and batches are whole, and every line is answered once,
#         after any number of kill -9.
# Method  a small random checkpoint, raw sockets: cases_operation.py. KILLS,
#         MUTATIONS, STREAMS and REQUESTS make it longer. Alone: it measures
#         memory.
. tests/tap.sh
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
grep -q fsanitize "${BUILD:-build}/flags" && export SANITIZED=yes
python3 tests/serve/cases_operation.py "$S" "$D"
