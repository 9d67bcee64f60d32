#!/bin/sh
# Goal    a grammar takes exactly the texts that are valid for its schema.
# Method  grammar_schemas.py: schemas by hand and by lot, texts of the
#         automaton's and of its own, against python3-jsonschema. SCHEMAS=N
#         tries N of them (make check-long: 1,000).
. tests/tap.sh
python=/usr/bin/python3
[ -x $python ] || python=python3
if ! $python -c 'import jsonschema' 2> /dev/null; then
    skip 'schemas against an independent validator' 'no python3-jsonschema'
else
    $python tests/property/grammar_schemas.py \
        "${BUILD:-build}/tests/property/test_grammar" "$D" "${SCHEMAS:-60}" \
        "${SEED:-1}" > "$D/out" 2> "$D/err" &&
        [ "$(cut -d' ' -f1 "$D/out")" -eq "${SCHEMAS:-60}" ] &&
        [ "$(cut -d' ' -f3 "$D/out")" -gt "$((${SCHEMAS:-60} * 15))" ]
    verdict $? "${SCHEMAS:-60} schemas against an independent validator"
fi
echo "1..$n"
