#!/bin/sh
# Goal    sluice chat and run --chat: a pipe gets the answers and nothing else,
#         a terminal gets editing, dim thoughts and a note while layers run;
#         Ctrl-C stops a reply and keeps it; the commands do what they say.
# Method  tests/chat/terminal.py: pipes and pseudo-terminals, on a small
#         random checkpoint.
. tests/tap.sh
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/chat/terminal.py "$S" "$D"
