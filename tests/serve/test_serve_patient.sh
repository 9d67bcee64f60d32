#!/bin/sh
# Goal    The official clients with their own time limits, ten minutes without a
#         byte, wait for an engine at 3 s a token.
# Method  a simulated drive that is slow enough; the clients of npm, a chat, a
#         stream, a message and a response at one time, and the bytes of two
#         more: patient.mjs. TOKENS is how long they are: 210 in `make
#         check-long`, a quarter of an hour; without it nothing is done.
what='the official clients'
. tests/tap.sh
if [ -z "$TOKENS" ]; then
    echo "1..1"
    skip "$what on a slow engine" "it takes minutes: make check-long"
    exit 0
fi
. tests/serve/npm.sh
cp tests/serve/patient.mjs "$npm" # beside its packages
node "$npm/patient.mjs" "$S" "$D" "$TOKENS"
