"""Samplers, choices, logprobs and forms: see test_batch_sampling.sh."""
import json
import math
import os
import re
import subprocess
import sys

SLUICE, FOLDER = sys.argv[1:]
MODEL = FOLDER + "/model"
IN, OUT = FOLDER + "/in.jsonl", FOLDER + "/out.jsonl"
count = 0


def check(good, name):
    global count
    count += 1
    print(("ok" if good else "not ok"), count, "-", name, flush=True)


def batch(bodies, *words, ids=None):
    """The answers' bodies, or their errors, in the order of the requests."""
    with open(IN, "w", encoding="utf-8") as f:
        for i, body in enumerate(bodies):
            name = ids[i] if ids else str(i)
            f.write(json.dumps({"custom_id": name, "body": body}) + "\n")
    if os.path.exists(OUT):
        os.remove(OUT)
    p = subprocess.run([SLUICE, "batch", MODEL, "-i", IN, "-o", OUT,
                        "--keep-order", "-m", "96M", "-t", "1", *words],
                       capture_output=True, text=True)
    if not os.path.exists(OUT):
        print("#", p.stderr)
        return []
    with open(OUT, encoding="utf-8") as f:
        lines = [json.loads(x) for x in f.read().split("\n")[:-1]]
    bodies = [x["response"]["body"] if x["response"] else x["error"]
              for x in lines]
    for b in bodies:
        b.pop("created", None)
    return bodies


def texts(body):
    if "choices" not in body:
        return [body["message"]]
    return [c["text"] if "text" in c else c["message"]["content"]
            for c in body["choices"]]


ASK = {"prompt": "Name a river", "max_tokens": 12, "temperature": 1}
CHAT = {"messages": [{"role": "user", "content": "Hm"}], "max_tokens": 12,
        "temperature": 1, "reasoning_effort": "none"}
EVERY = [
    ASK, {**ASK, "top_k": 7}, {**ASK, "min_p": 0.1}, {**ASK, "top_p": 0.6},
    {**ASK, "presence_penalty": 1.5}, {**ASK, "frequency_penalty": 1.2},
    {**ASK, "repetition_penalty": 1.3}, {**ASK, "logit_bias": {"65": 4}},
    {**ASK, "temperature": 0, "repetition_penalty": 1.5},
    {**ASK, "n": 3, "logprobs": 3}, {**ASK, "seed": 7, "n": 2},
    {**CHAT, "logprobs": True, "top_logprobs": 2, "n": 2},
    {**CHAT, "response_format": {"type": "json_object"}, "max_tokens": 30},
    {**ASK, "regex": "[a-f]{2,9}(-[0-9]+)?", "max_tokens": 30},
    {**ASK, "prompt": "aaaa aaaa aaaa aaaa", "max_tokens": 20},
    {**ASK, "prompt": "aaaa aaaa", "temperature": 0, "logprobs": 1},
]


def case_bits():
    first = batch(EVERY)
    check(len(first) == len(EVERY) and
          all("choices" in b for b in first), "every sampler is served")
    for words in (["-t", "2"], ["-m", "200M"],
                  ["--sequences", "1"], ["--rows", "3", "--sequences", "2"],
                  ["--draft", "4"], ["--draft", "auto", "-t", "2"]):
        check(batch(EVERY, *words) == first, "the same with " + " ".join(words))


def case_streams():
    same = [ASK] * 6
    a, b = batch(same), batch(same)
    said = [texts(x)[0] for x in a]
    check(a == b and len(set(said)) == 6,
          "equal prompts differ without a seed, a second run repeats")
    check(batch(same, "--seed", "9") != a, "--seed gives others")
    named = [texts(x)[0] for x in
             batch(same, ids=["5", "4", "3", "2", "1", "0"])]
    check(named == said[::-1], "the stream is the custom_id's")
    seeded = [texts(x)[0] for x in batch([{**ASK, "seed": 5}] * 3)]
    check(len(set(seeded)) == 1, "equal seeds give equal texts")
    many = batch([{**ASK, "n": 5}, {**ASK, "n": 4, "seed": 5}])
    check(len(set(texts(many[0]))) == 5 and
          [c["index"] for c in many[0]["choices"]] == [0, 1, 2, 3, 4],
          "choices differ")
    check(texts(many[1])[0] == seeded[0] and len(set(texts(many[1]))) == 4,
          "the first choice of a seed is the seed's")
    two = batch([{**ASK, "n": 2, "prompt": ["ab", "cdefgh"]}])[0]
    one = batch([{**ASK, "prompt": ["ab", "cdefgh"]}])[0]
    check(len(two["choices"]) == 4 and two["usage"]["prompt_tokens"] ==
          one["usage"]["prompt_tokens"] and
          two["usage"]["completion_tokens"] == 48,
          "usage counts a prompt once for its choices")
    greedy = batch([{**ASK, "temperature": 0}, {**ASK, "top_k": 1},
                    {k: v for k, v in ASK.items() if k != "temperature"},
                    {**ASK, "top_p": 1e-9}, {**ASK, "min_p": 1}])
    check(all(texts(g) == texts(greedy[0]) for g in greedy) and
          texts(greedy[0])[0] not in said,
          "no temperature, top_k 1, a tiny top_p, min_p 1: the likeliest id")


def case_bias():
    forced = batch([{**ASK, "logit_bias": {"65": 100}, "temperature": 0},
                    {**ASK, "logit_bias": {"65": -100, "66": 100}}])
    plain, words = batch([{**ASK, "temperature": 0}]), ["--temperature", "1"]
    check([set(texts(f)[0]) for f in forced] == [{"A"}, {"B"}],
          "a bias of 100 is the only id")
    check(texts(batch([{k: v for k, v in ASK.items()
                        if k != "temperature"}], *words,
                      "--logit-bias", "67=100")[0])[0] == "C" * 12 and
          plain == batch([{**ASK, "temperature": 0, "logit_bias": {}}]),
          "--logit-bias is for lines that have none")
    rep = batch([{**ASK, "temperature": 0, "logit_bias": {"65": 8},
                  "presence_penalty": 2, "frequency_penalty": 2}])
    check(len(set(texts(rep[0])[0])) > 1, "penalties end a repetition")


def case_stops():
    base = batch([{**ASK, "temperature": 0, "return_token_ids": True}])[0]
    ids = base["choices"][0]["token_ids"]
    at = ids.index(ids[5])
    stopped, other = batch([
        {**ASK, "temperature": 0, "stop_token_ids": [ids[5]],
         "return_token_ids": True},
        {**ASK, "temperature": 0, "stop": texts(base)[0][3:6]}])
    choice = stopped["choices"][0]
    check(choice["finish_reason"] == "stop" and
          choice["token_ids"] == ids[:at + 1] and
          texts(base)[0].startswith(choice["text"]) and
          stopped["usage"]["completion_tokens"] == at + 1,
          "stop_token_ids ends before the id's text")
    cut = texts(base)[0].index(texts(base)[0][3:6])
    check(texts(other)[0] == texts(base)[0][:cut], "so does a stop string")
    line = batch([{**ASK, "temperature": 0}], "--stop",
                 texts(base)[0][3:6])[0]
    check(line["choices"] == other["choices"], "--stop as well")
    echo = batch([{**ASK, "temperature": 0, "echo": True}])[0]
    check(texts(echo)[0] == ASK["prompt"] + texts(base)[0], "echo")


def case_logprobs():
    zero, five, chat, stop = batch([
        {**ASK, "logprobs": 0}, {**ASK, "logprobs": 5},
        {**CHAT, "logprobs": True, "top_logprobs": 4},
        {**ASK, "logprobs": 1, "temperature": 0, "stop": "zz"}])
    a = zero["choices"][0]["logprobs"]
    check(a["top_logprobs"] is None and len(a["tokens"]) == 12 and
          len(a["token_logprobs"]) == 12 and len(a["text_offset"]) == 12 and
          all(x <= 0 for x in a["token_logprobs"]), "logprobs 0 is its own")
    b = five["choices"][0]["logprobs"]
    good = [list(t.values())[:5] == sorted(list(t.values())[:5], reverse=True)
            and t[token] == p and 5 <= len(t) <= 6 and
            sum(math.exp(v) for v in t.values()) <= 1 + 1e-6
            for t, token, p in zip(b["top_logprobs"], b["tokens"],
                                   b["token_logprobs"])]
    check(all(good) and "".join(b["tokens"]) == texts(five)[0],
          "the likeliest five, best first, and the chosen one")
    entries = chat["choices"][0]["logprobs"]["content"]
    said = b"".join(bytes(e["bytes"]) for e in entries)
    check(said.decode("utf-8", "replace") == texts(chat)[0] and
          all(len(e["top_logprobs"]) == 4 and e["logprob"] <= 0
              for e in entries), "of a chat: the content's bytes")
    check(stop["choices"][0]["logprobs"]["tokens"] is not None, "with a stop")
    think = batch([{**CHAT, "logprobs": True, "reasoning_effort": "low"}])[0]
    check(think["choices"][0]["logprobs"]["content"] == [] or
          texts(think)[0], "no logprobs of thoughts")


def case_forms():
    schema = {"type": "object", "properties": {
        "a": {"enum": [1, 2, 3]}, "b": {"type": "boolean"}},
        "required": ["a", "b"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x",
                                                   "schema": schema}}
    asks = [{**ASK, "response_format": form, "max_tokens": 200},
            {**CHAT, "response_format": form, "max_tokens": 200, "n": 4},
            {**ASK, "guided_json": json.dumps(schema), "max_tokens": 200},
            {**ASK, "regex": "x[0-9]{3}", "max_tokens": 200},
            {**ASK, "guided_regex": "(ab|cd)+e", "max_tokens": 4}]
    said = batch(asks)
    values = [json.loads(t) for x in said[:3] for t in texts(x)]
    check(len(values) == 6 and
          all(set(v) == {"a", "b"} and v["a"] in (1, 2, 3) and
              isinstance(v["b"], bool) for v in values),
          "texts of a schema have its form")
    check(re.fullmatch("x[0-9]{3}", texts(said[3])[0]), "a regex")
    last = said[4]["choices"][0]
    check(re.fullmatch("(ab|cd)+e", last["text"]) or
          last["finish_reason"] == "length", "cut at the limit: length")
    with open(FOLDER + "/schema", "w") as f:
        json.dump(schema, f)
    line = batch([{**ASK, "max_tokens": 200}], "--json-schema",
                 FOLDER + "/schema")
    check(set(json.loads(texts(line[0])[0])) == {"a", "b"}, "--json-schema")


case_bits()
case_streams()
case_bias()
case_stops()
case_logprobs()
case_forms()
print("1..%d" % count)
