"""One request in the words of many programs: see test_batch_dialects.sh."""
import json
import lzma
import os
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


def batch(data, *words, to=OUT):
    with open(IN, "wb") as f:
        f.write(data)
    if os.path.exists(OUT):
        os.remove(OUT)
    return subprocess.run([SLUICE, "batch", MODEL, "-i", IN, "-o", to, "-t",
                           "1", "-m", "64M", *words], capture_output=True)


def answers():
    with open(OUT, encoding="utf-8") as f:
        return [json.loads(line) for line in f.read().split("\n")[:-1]]


def text_of(answer):
    if answer["error"]:
        return answer["error"]["message"]
    choice = answer["response"]["body"]["choices"][0]
    return (choice.get("text"), choice.get("message"),
            choice["finish_reason"], answer["response"]["body"]["usage"])


def dialects():
    """Bodies (dict or text) that all ask for the same, and lines around them
    that do."""
    ask = {"prompt": "Name a river", "max_tokens": 6, "temperature": 0.7,
           "seed": 3}
    more = [
        {}, {"model": "k3"}, {"model": "Kimi-K3"}, {"model": ""},
        {"model": None}, {"stop": None}, {"stop": []}, {"stop": ""},
        {"stop": [""]}, {"stop": ["never this"]}, {"stream": False},
        {"stream": True}, {"stream_options": {"include_usage": True}},
        {"n": 1}, {"n": 1.0}, {"best_of": 1}, {"echo": False},
        {"logprobs": None}, {"logit_bias": {}}, {"logit_bias": None},
        {"user": "ann"}, {"metadata": {"a": "b"}}, {"suffix": None},
        {"suffix": ""}, {"top_p": 1}, {"top_p": 1.0}, {"top_p": None},
        {"top_k": -1}, {"top_k": 0}, {"min_p": 0.0}, {"presence_penalty": 0},
        {"frequency_penalty": 0.0}, {"repetition_penalty": 1.0},
        {"tools": None}, {"bogus": None}, {"bogus": []}, {"bogus": ""},
        {"bogus": {}}, {"seed": 3.0}, {"seed": 30e-1}, {"max_tokens": 6.0},
        {"max_tokens": 99, "max_completion_tokens": 6},
        {"max_completion_tokens": 6, "max_tokens": None},
        {"prompt": ["Name a river"]}, {"skip_special_tokens": True},
        {"store": True, "service_tier": "flex"}, {"ignore_eos": False},
    ]
    for extra in more:
        yield {"body": {**ask, **extra}}
    body = json.dumps(ask)
    for text in ('"seed": 3e0', '"seed": 3.000', '"seed": 7, "seed": 3'):
        yield {"body": body.replace('"seed": 3', text)}
    # the newer name wins, whatever the order
    yield {"body": {**{k: v for k, v in ask.items() if k != "max_tokens"},
                    "max_completion_tokens": 6, "max_tokens": 99}}
    for url in ("/v1/completions", "/completions", "completions",
                "https://api.example.com/v1/completions",
                "https://x/openai/deployments/k/completions/", "", None):
        yield {"url": url, "body": ask}
    for method in ("POST", "post", "Post", "", None):
        yield {"method": method, "body": ask}
    yield {"extra": None, "body": ask}
    yield dict(ask)  # fields beside the id


def lines():
    for i, line in enumerate(dialects()):
        body = line.get("body")
        head = json.dumps({"custom_id": str(i), **line, "body": 0})
        if isinstance(body, str):
            yield head.replace('"body": 0', '"body": ' + body)
        elif body is None:
            yield json.dumps({"custom_id": str(i), **line})
        else:
            yield json.dumps({"custom_id": str(i), **line})


def case_dialects():
    data = "\n".join(lines()) + "\n"
    p = batch(data.encode())
    found = {a["custom_id"]: text_of(a) for a in answers()}
    odd = [(i, x) for i, x in found.items() if x != found["0"]]
    for x in odd[:4]:
        print("#", x, list(dialects())[int(x[0])])
    check(p.returncode == 0 and len(found) == len(list(lines())) >= 50 and
          not odd and found["0"][3]["completion_tokens"] == 6,
          "%d dialects of one request, equal answers" % len(found))
    marked = b"\xef\xbb\xbf" + data.replace("\n", "\r\n\n").encode()
    p = batch(marked)
    again = {a["custom_id"]: text_of(a) for a in answers()}
    check(p.returncode == 0 and again == found,
          "with a mark, carriage returns and blank lines")


def case_chat():
    ask = {"messages": [{"role": "user", "content": "Hm\u2028\x85m"}],
           "max_tokens": 5, "reasoning_effort": "none"}
    same = [
        {}, {"messages": [{"role": "user", "name": None, "tool_calls": None,
                           "content": ask["messages"][0]["content"]}]},
        {"reasoning_effort": None, "thinking": {"type": "disabled"}},
        {"reasoning_effort": None, "thinking": False},
        {"reasoning_effort": None,
         "chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": None, "reasoning": {"effort": "none"}},
        {"tools": []}, {"tool_choice": "auto"}, {"tool_choice": "none"},
        {"response_format": {"type": "text"}}, {"logprobs": False},
        {"top_logprobs": 0}, {"modalities": ["text"]},
        {"parallel_tool_calls": True}, {"functions": []},
        {"parallel_tool_calls": ""}, {"response_format": {}},
        {"tool_choice": {}}, {"reasoning": []}, {"thinking": ""},
        {"chat_template_kwargs": {"thinking_effort": "", "thinking": None}},
        {"messages": [{"role": "user", "name": [], "tool_calls": {},
                       "reasoning": {}, "tool_call_id": "", "partial": "",
                       "content": ask["messages"][0]["content"]}]},
    ]
    data = "".join(json.dumps({
        "custom_id": "\u2028%d" % i, "url": "v1/chat/completions",
        "body": {**ask, **more}}, ensure_ascii=False) + "\n"
        for i, more in enumerate(same))
    p = batch(data.encode())
    with open(OUT, encoding="utf-8") as f:
        whole = f.read()
    check(len(whole.splitlines()) == len(same),
          "no line ends at U+2028 for others")
    found = [text_of(a) for a in answers()]
    check(p.returncode == 0 and all(x == found[0] for x in found) and
          isinstance(found[0][1], dict), "dialects of a chat")
    body = answers()[0]["response"]["body"]
    choice = body["choices"][0]
    check(set(body) == {"id", "object", "created", "model", "choices",
                        "usage"} and
          set(choice) == {"index", "message", "logprobs", "finish_reason"} and
          {"role", "content", "refusal"} <= set(choice["message"]) and
          set(body["usage"]) == {"prompt_tokens", "completion_tokens",
                                 "total_tokens", "completion_tokens_details"},
          "the body has what strict clients demand")


def case_refused():
    ask = {"prompt": "x", "max_tokens": 2}
    wrong = [("bogus", {"bogus": 1}), ("n", {"n": 0}), ("n", {"n": 129}),
             ("best_of", {"n": 2, "best_of": 3}),
             ("logprobs", {"logprobs": 21}), ("logprobs", {"logprobs": -1}),
             ("top_logprobs", {"top_logprobs": 1}),
             ("echo", {"echo": 1}), ("echo", {"echo": True, "logprobs": 1}),
             ("logit_bias", {"logit_bias": {"5": 101}}),
             ("logit_bias", {"logit_bias": {"5x": 1}}),
             ("logit_bias", {"logit_bias": {"99999999": 1}}),
             ("logit_bias", {"logit_bias": [1]}),
             ("stop_token_ids", {"stop_token_ids": ["a"]}),
             ("min_tokens", {"min_tokens": 1}), ("top_k", {"top_k": -2}),
             ("min_p", {"min_p": 1.5}), ("top_p", {"top_p": 0}),
             ("presence_penalty", {"presence_penalty": 2.5}),
             ("frequency_penalty", {"frequency_penalty": "1"}),
             ("repetition_penalty", {"repetition_penalty": 0}),
             ("regex", {"regex": "[ab"}), ("guided_json", {"guided_json": 3}),
             ("response_format", {"response_format": {
                 "type": "json_schema", "json_schema": {
                     "name": "x", "schema": {"type": "array",
                                             "contains": {}}}}}),
             ("max_tokens", {"max_tokens": 1.5}),
             ("max_tokens", {"max_tokens": "9"}), ("seed", {"seed": "a"}),
             ("temperature", {"temperature": -1}), ("stop", {"stop": 3}),
             ("prompt", {"prompt": [1, "a"]}), ("prompt", {"prompt": {}}),
             ("messages[0].content",
              {"prompt": None, "messages": [{"role": "user", "content": 5}]})]
    data = "".join(json.dumps({"custom_id": str(i),
                               "body": {**ask, **more}}) + "\n"
                   for i, (_, more) in enumerate(wrong))
    batch(data.encode())
    said = {int(a["custom_id"]): a["error"] for a in answers()}
    missing = [w for i, w in enumerate(wrong) if not said[i] or
               not said[i]["message"].startswith(w[0] + ": ")]
    for w in missing:
        print("#", w, said[wrong.index(w)])
    check(not missing, "what would change the answer is refused by its name")


def case_prompts():
    """Several prompts in one line: a choice each, as each has alone."""
    prompts = ["Name a river", "x", "Name a river", "longer than the others"]
    alone = "".join(json.dumps({"id": i, "prompt": p, "max_tokens": 6}) + "\n"
                    for i, p in enumerate(prompts))
    batch(alone.encode())
    want = {a["custom_id"]: a["response"]["body"] for a in answers()}
    lines = [{"id": "all", "prompt": prompts, "max_tokens": 6},
             {"id": "one", "prompt": [prompts[1]], "max_tokens": 6},
             {"id": "bad", "prompt": ["x", [1, 10 ** 9]]},
             {"id": "mixed", "prompt": [[1, 2], "x"], "max_tokens": 6,
              "return_token_ids": True}]
    data = "".join(json.dumps(x) + "\n" for x in lines)
    first = None
    for words in ((), ("--sequences", "2"), ("--sequences", "9"),
                  ("--keep-order",)):
        p = batch(data.encode(), *words)
        found = {a["custom_id"]: a for a in answers()}
        for a in found.values():
            if a["response"]:
                a["response"]["body"].pop("created")
        first = first or found
        if found != first or len(found) != 4:
            break
    check(p.returncode == 3 and found == first and len(found) == 4,
          "several prompts, the same answer in any company")
    body = found["all"]["response"]["body"]
    keys = "prompt_tokens", "completion_tokens", "total_tokens"
    check([c["index"] for c in body["choices"]] == [0, 1, 2, 3] and
          [c["text"] for c in body["choices"]] ==
          [want[i]["choices"][0]["text"] for i in range(4)] and
          all(body["usage"][k] == sum(want[i]["usage"][k] for i in range(4))
              for k in keys), "a choice for each prompt")
    check(found["one"]["response"]["body"]["choices"] ==
          want[1]["choices"] and found["bad"]["error"] and
          len(found["mixed"]["response"]["body"]["choices"]) == 2 and
          all(len(c["token_ids"]) <= 6 for c in
              found["mixed"]["response"]["body"]["choices"]),
          "a list of one; ids beside texts; one wrong prompt is an error")
    p = batch(data.encode(), "--logits", FOLDER + "/logits")
    check(all(a["error"] for a in answers() if a["custom_id"] in
              ("all", "mixed", "bad")) and
          not {a["custom_id"]: a for a in answers()}["one"]["error"],
          "--logits are of one prompt a line")


def case_lenient():
    lines = [{"id": "a", "prompt": "x", "max_tokens": 2},
             {"id": "b", "prompt": "x", "max_tokens": 2, "bogus": 1,
              "min_tokens": 1}]
    p = batch("".join(json.dumps(x) + "\n" for x in lines).encode(),
              "--lenient", "--report", FOLDER + "/report")
    a, b = (text_of(x) for x in sorted(answers(),
                                       key=lambda x: x["custom_id"]))
    with open(FOLDER + "/report") as f:
        told = json.load(f)["batch"]["fields_ignored"]
    check(p.returncode == 0 and a == b and told == 2 and
          b"2 fields ignored" in p.stderr,
          "--lenient ignores fields and counts them")


def case_encodings():
    text = json.dumps({"custom_id": "a", "prompt": [1]}) + "\n"
    for name, data in (("UTF-16", text.encode("utf-16")),
                       ("UTF-32", text.encode("utf-32")),
                       ("xz", lzma.compress(text.encode()))):
        p = batch(data)
        check(p.returncode == 1 and name.encode() in p.stderr and
              len(p.stderr.splitlines()) == 1 and not os.path.exists(OUT),
              name + " is named before there is an output")


case_dialects()
case_chat()
case_refused()
case_prompts()
case_lenient()
case_encodings()
print("1..%d" % count)
