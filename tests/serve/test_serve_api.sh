#!/bin/sh
# Goal    What sluice serve answers over HTTP is what sluice batch answers, in
#         the forms of OpenAI's, Anthropic's and the Responses API, whole and
#         streamed, alone and in company; errors have the shape of the API.
# Method  a small random checkpoint, a client of sockets: cases_api.py.
. tests/tap.sh
$S synth "$D/model" --preset tiny --num-hidden-layers 5 --num-experts 16 \
    --hidden-size 64 || exit 1
python3 tests/serve/cases_api.py "$S" "$D"
