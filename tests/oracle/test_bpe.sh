#!/bin/sh
# Goal    a vocabulary of K3's size gives the ids of an implementation that
#         shares nothing with ours, and the texts come back from them.
# Method  bpe.py makes a vocabulary of 163,584 tokens, texts in many scripts and
#         their ids: plain, and with special tokens among them. Where the
#         reference tokenizer's ids of the released vocabulary are, bpe.py is
#         held to those. SEED=N replays a run.
. tests/tap.sh
SEED=${SEED:-1}
RELEASED=../shared/data/kimi-k3/tiktoken.model
GOLDEN=../shared/data/tokenizer/golden.tsv
python3 -B tests/oracle/bpe.py "$D" "$SEED" || exit 1
for kind in plain special; do
    special=$([ $kind = special ] && echo --special)
    [ "$(wc -l < "$D/$kind.ids")" -ge 300 ] &&
        "$S" tokenize "$D" --lines $special -f "$D/$kind.texts" \
            > "$D/ids" 2> "$D/err" && cmp "$D/ids" "$D/$kind.ids"
    verdict $? "$kind: ids"
    "$S" tokenize "$D" --lines --decode -f "$D/$kind.ids" > "$D/texts" \
        2> "$D/err" &&
        python3 - "$D/texts" "$D/$kind.texts" << 'PY'
import json, sys
a, b = ([json.loads(line) for line in open(f)] for f in sys.argv[1:])
sys.exit(not a or a != b)
PY
    verdict $? "$kind: texts"
done
if [ -r $RELEASED ] && [ -r $GOLDEN ]; then # test_tok_golden says if not
    python3 -B tests/oracle/bpe.py --golden $RELEASED $GOLDEN
    verdict $? "bpe.py is right about the released vocabulary"
fi
echo "1..$n"
