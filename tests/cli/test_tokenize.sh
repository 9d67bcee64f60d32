#!/bin/sh
# Goal    what a person types gets ids, text, or one sentence and the right exit
#         status.
# Method  a folder with the 256 single bytes, "hi" and K3's special tokens, and
#         nothing else.
. tests/tap.sh
python3 - "$D" << 'PY'
import base64, json, sys
d = sys.argv[1]
tokens = [bytes([i]) for i in range(256)] + [b"hi"]
with open(d + "/tiktoken.model", "wb") as f:
    for rank, token in enumerate(tokens):
        f.write(base64.b64encode(token) + b" %d\n" % rank)
names = {257: "[BOS]", 258: "[EOS]", 259: "<|end_of_msg|>", 260: "<|open|>"}
with open(d + "/tokenizer_config.json", "w") as f:
    json.dump({"added_tokens_decoder":
               {str(i): {"content": s} for i, s in names.items()}}, f)
PY

# gives NAME WANT command...: stdout is WANT, exit 0, stderr empty
gives() {
    name=$1 want=$2
    shift 2
    got=$("$@" 2> "$D/err") && [ "$got" = "$want" ] && [ ! -s "$D/err" ]
    s=$?
    [ $s -eq 0 ] || printf '# got %s, err %s\n' "$got" "$(cat "$D/err")"
    verdict $s "$name"
}
# fails NAME STATUS WORDS command...: exit STATUS, WORDS in one line on stderr,
# with a hint or without
fails() {
    name=$1 status=$2 words=$3
    shift 3
    "$@" > "$D/out" 2> "$D/err" < /dev/null
    s=$?
    [ $s -eq "$status" ] && head -n 1 "$D/err" | grep -qF -- "$words" &&
        { [ "$status" -eq 2 ] || [ "$(grep -cv '^hint: ' "$D/err")" -eq 1 ]; }
    s=$?
    [ $s -eq 0 ] || sed 's/^/# /' "$D/err"
    verdict $s "$name"
}
T() { "$S" tokenize "$D" "$@"; }
feed() { # input, then arguments
    printf "$1" > "$D/in"
    shift
    T "$@" < "$D/in"
}

gives text 256,33 T -p 'hi!'
gives 'empty text' '' T -p ''
gives 'stdin, all of it' 256,10,0,10 feed 'hi\n\000\n'
printf 'hi hi' > "$D/text"
gives file 256,32,256 T -f "$D/text"
gives 'plain by default' 91,69,79,83,93 T -p '[EOS]'
gives --special 256,258,256 T --special -p 'hi[EOS]hi'
gives decode 'hi hi' T --decode -p '256, 32 ,256'
gives 'decode specials' '<|open|>hi<|reserved_token_261|>' \
    T --decode -p 260,256,261
gives 'decode bytes' "$(printf '\303\050')" T --decode -p 195,40
gives lines "$(printf '256\n\n34,0,195,165')" \
    feed '"hi"\n""\n"\\"\\u0000\303\245"\n' --lines
gives 'decode lines' \
    "$(printf '%s\n' '"hi"' '""' '"\u00E9\uD83D\uDE00\u0000"')" \
    feed '256\n\n195,169,240,159,152,128,0\n' --decode --lines
gives 'decode lines, no UTF-8' '"a\uFFFD\uFFFDb\uFFFD"' \
    feed '97,255,240,159,152,98,195\n' --decode --lines
gives 'CRLF and no last end' "$(printf '"hi"\n"!"')" \
    feed '256\r\n33' --decode --lines

python3 -c 'import random, sys
sys.stdout.buffer.write(random.Random(3).randbytes(300000))' > "$D/raw"
T < "$D/raw" | T --decode | cmp -s - "$D/raw"
verdict $? 'random bytes there and back'
python3 -c 'import json, random
r = random.Random(5)
for _ in range(2000):
    print(json.dumps("".join(chr(c) for c in (r.choice((r.randrange(128),
        r.randrange(0xd800), r.randrange(0xe000, 0x110000)))
        for _ in range(r.randrange(20))))))' > "$D/json"
T --lines < "$D/json" | T --decode --lines > "$D/back"
python3 -c 'import json, sys
a, b = (open(f).read().split("\n") for f in sys.argv[1:])
sys.exit([x and json.loads(x) for x in a] != [x and json.loads(x) for x in b])
' "$D/json" "$D/back"
verdict $? 'random strings there and back'

fails 'id too large' 1 'line 1: id 513 is not below 513' T --decode -p 513
fails 'id huge' 1 'line 1: id 99999999999999999999' \
    T --decode -p 99999999999999999999999
for bad in 1, ,1 1,,2 '1 2' a -1 1a 0x1; do
    fails "decode '$bad'" 1 'not a list of comma-separated ids' \
        T --decode -p "$bad"
done
for bad in abc '["a"]' '"a" "b"' '"\ud800"' 1 ''; do
    printf '"ok"\n%s\n' "$bad" > "$D/in"
    fails "line $bad" 1 'line 2: not a JSON string' T --lines -f "$D/in"
done
"$S" --version > "$D/out" && grep -q ', Unicode [0-9.]*$' "$D/out"
verdict $? 'the version says which Unicode'
fails 'no such file' 1 /nonexistent T -f /nonexistent
fails 'a folder as text' 1 'Is a directory' T -f "$D"
fails 'no such model' 1 /nonexistent/tiktoken.model \
    "$S" tokenize /nonexistent -p a
fails 'no MODEL' 2 'folder of a model' "$S" tokenize
fails 'two sources' 2 'give -p or -f' T -p a -f b
fails 'unknown option' 2 --nope T --nope
fails 'output full' 1 'No space left' \
    sh -c "'$S' tokenize '$D' -p a > /dev/full"
printf 'AA== 0\n' > "$D/tiktoken.model"
fails 'broken vocabulary' 1 'no token for the single byte 0x01' T -p a
echo "1..$n"
