#!/bin/sh
# Goal    chat requests become ids and replies messages, line by line, without
#         shards; a refusal names its field and ends in exit status 1.
# Method  a vocabulary of single bytes and K3's control tokens; where the
#         released vocabulary is, all goldens of tests/data/chat as well.
. tests/tap.sh
python3 - "$D" << 'PY'
import base64, json, sys
d = sys.argv[1]
with open(d + "/tiktoken.model", "wb") as f:
    for i in range(256):
        f.write(base64.b64encode(bytes([i])) + b" %d\n" % i)
names = {256: "[BOS]", 257: "[EOS]", 258: "<|end_of_msg|>", 259: "<|open|>",
         260: "<|close|>", 261: "<|sep|>"}
with open(d + "/tokenizer_config.json", "w") as f:
    json.dump({"added_tokens_decoder":
               {str(i): {"content": s} for i, s in names.items()}}, f)
PY
T() { "$S" tokenize "$D" --lines "$@"; }

want='<|open|>message role="user"<|sep|>Hi<|close|>message<|sep|>'
want="$want<|end_of_msg|><|open|>message role=\"assistant\"<|sep|>"
want="$want<|open|>response<|sep|>"
ask='{"messages":[{"role":"user","content":"Hi"}],"reasoning_effort":"none"}'
got=$(echo "$ask" | T --chat | "$S" tokenize "$D" --decode)
[ "$got" = "$want" ]
verdict $? 'a request becomes the ids of its prompt'
got=$(printf '\357\273\277%s\r\n' "$ask" | T --chat |
    "$S" tokenize "$D" --decode)
[ "$got" = "$want" ]
verdict $? "UTF-8's mark and a carriage return are nothing"

{
    echo '{"messages":[{"role":"wizard"}]}'
    echo "$ask"
    echo '{"messages":[],"temperature":1}'
    echo 'not JSON'
    echo '{"messages":[{"role":"user"}],"bogus":1}'
    echo '{"prompt":"x"}'
} | T --chat > "$D/out" 2> "$D/err"
s=$?
[ $s -eq 1 ] && [ ! -s "$D/err" ] && [ "$(sed 's/^\(error: [^ ]*\) .*/\1/;
    s/^[0-9,]*$/ids/' "$D/out" | tr '\n' ' ')" = \
    'error: messages[0].role: ids error: messages: error: request: '\
'error: bogus: error: messages: ' ]
verdict $? 'a refusal a line, by field, and exit 1'

reply() { # text with special tokens, options
    printf '{"ids":[%s]%s}\n' "$("$S" tokenize "$D" --special -p "$1")" "$2" |
        T --reply
}
[ "$(reply 'so<|close|>think<|sep|><|open|>response<|sep|>Yes<|end_of_msg|>')" \
    = '{"reasoning_content":"so","content":"Yes","tool_calls":[],'\
'"finish_reason":"stop","used":23,"deltas":[[1,"think","s"],[2,"think","o"],'\
'[20,"text","Y"],[21,"text","e"],[22,"text","s"]]}' ]
verdict $? 'a reply becomes a message, with what is shown after each id'
case $(reply 'Ho' ',"thinking":false,"stop":["o"]') in
*'"content":"H"'*'"finish_reason":"stop","used":2'*) s=0 ;;
*) s=1 ;;
esac
verdict $s 'options beside the ids'
echo '{"ids":[9999]}' | T --reply > "$D/out"
[ $? -eq 1 ] && grep -q '^error: ids: 9999 is no id below 512$' "$D/out"
verdict $? 'an id that is none is refused'

for word in --chat --reply '--lines --chat --reply' '--lines --chat --decode'
do
    "$S" tokenize "$D" $word < /dev/null > "$D/out" 2>&1
    [ $? -eq 2 ]
    verdict $? "usage: $word"
done
printf '{"messages":[]}\n' | iconv -t UTF-16 | T --chat > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'it is UTF-16' "$D/err" && [ ! -s "$D/out" ]
verdict $? 'UTF-16 is named'
echo "$ask" | gzip | T --chat > "$D/out" 2> "$D/err"
[ $? -eq 1 ] && grep -q 'compressed by gzip' "$D/err" && [ ! -s "$D/out" ]
verdict $? 'gzip is named'

K3=../shared/data/kimi-k3
if [ -r $K3/tiktoken.model ]; then
    python3 - "$S" $K3 << 'PY'
import json, subprocess, sys
def lines(path):
    with open("tests/data/chat/" + path, encoding="utf-8") as f:
        return f.read().split("\n")[:-1]
def run(what, asked):
    p = subprocess.run([sys.argv[1], "tokenize", sys.argv[2], what, "--lines"],
                       input="".join(x + "\n" for x in asked).encode(),
                       capture_output=True)
    return p.returncode, p.stdout.decode().split("\n")[:-1]
asked, want = [], []
for line in lines("encode.jsonl"):  # the request as it is spelt
    begin = line.index('"request":') + len('"request":')
    end = json.JSONDecoder().raw_decode(line, begin)[1]
    asked.append(line[begin:end])
    row = json.loads(line)
    want.append("error: %s:" % row["error"] if "error" in row
                else ",".join(map(str, row["ids"])))
status, got = run("--chat", asked)
got = [": ".join(x.split(": ")[:2]) + ":" if x[:1] == "e" else x for x in got]
bad = status != 1 or got != want
rows = [json.loads(line) for line in lines("reply.jsonl")]
keys = "ids", "thinking", "calls", "stop", "first", "one"
status, got = run("--reply", [json.dumps({k: r[k] for k in keys if k in r})
                              for r in rows])
keys = ("reasoning_content", "content", "tool_calls", "finish_reason", "used",
        "deltas", "moved")
bad |= status != 0 or len(got) != len(rows)
for a, b in zip(map(json.loads, got), rows):
    bad |= any(a.get(k) != b.get(k) for k in keys)
sys.exit(bad)
PY
    verdict $? '229 requests and 125 replies of the goldens'
fi # test_tok_golden.c says when it is absent
echo "1..$n"
