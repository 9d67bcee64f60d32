"""Schemas and texts for a grammar, against python3-jsonschema.

usage: grammar_schemas.py TOOL FOLDER SCHEMAS SEED

TOOL is test_grammar: `check SCHEMA` says of each line of stdin whether the
automaton takes it; `make SCHEMA N SEED` makes texts. For each schema: texts that
the automaton made must be valid; texts made here (values by the schema, values
by lot, and changes of both) must be taken if and only if they are valid. What a
grammar adds to validity is checked here: keys once, no lone surrogates, at most
32 blanks. Prints one line: schemas, texts, valid ones.
"""
import decimal, json, random, re, subprocess, sys

import jsonschema

tool, folder, count, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
lot = random.Random(seed)
Decimal = decimal.Decimal
decimal.getcontext().prec = 400


def real(text):
    """Decimals end at some exponent; ours are farther from all bounds."""
    mantissa, _, exponent = text.lower().partition("e")
    e = max(-100000, min(100000, int(exponent or 0)))
    return Decimal("%se%d" % (mantissa, e))


def is_number(checker, v):
    return isinstance(v, (int, Decimal)) and not isinstance(v, bool)


def is_integer(checker, v):
    if isinstance(v, Decimal):
        sign, digits, exponent = v.as_tuple()
        text = "".join(map(str, digits)).rstrip("0")
        return not text or exponent + len(digits) >= len(text)
    return is_number(checker, v)


types = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
    {"number": is_number, "integer": is_integer})


def pattern(validator, p, instance, schema):
    p = p.replace("$", r"\Z").replace("\\d", "[0-9]").replace("\\w", "[0-9A-Za-z_]")
    if isinstance(instance, str) and not re.search(p, instance):
        yield jsonschema.ValidationError("pattern")


FORMATS = {
    "date": r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\Z",
    "uuid": r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z",
    "ipv4": r"^(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
            r"(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}\Z",
}


def form(validator, name, instance, schema):
    if isinstance(instance, str) and not re.search(FORMATS[name], instance):
        yield jsonschema.ValidationError("format")


Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator, {"pattern": pattern, "format": form},
    type_checker=types)


def stop(*what):
    sys.exit(": ".join(str(w)[:400] for w in what))


class Twice(Exception):
    pass


def once(pairs):
    if len({k for k, _ in pairs}) != len(pairs):
        raise Twice
    return dict(pairs)


def blanks_fit(text):
    out = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    return not re.search(r"[ \t\n\r]{33}", out)


def valid(validator, text):
    try:
        v = json.loads(text, object_pairs_hook=once, parse_float=real)
        text.encode()
        json.dumps(v, default=str, ensure_ascii=False).encode()
    except (ValueError, Twice, RecursionError, decimal.InvalidOperation):
        return False
    if "NaN" in text or "Infinity" in text:
        return False
    return blanks_fit(text) and validator.is_valid(v)


NAMES = ["a", "b", "ab", "name", "\u00e9", "x y", "k\"q"]
WORDS = ["", "a", "ab", "red", "blue", "2026-11-30", "caf\u00e9", "\U0001f600",
         "aab", "192.168.0.1", "00000000-1111-2222-3333-444444444444", "tab\t"]
PATTERNS = ["^a*b?$", "b", "^[a-c]{1,3}$", "^(red|blue)$", "\\d\\d", "^\\w+$"]
NUMBERS = [0, 1, -1, 2, 10, Decimal("0.5"), Decimal("-1.25"), 100, 1000000]


def scalar_schema():
    kind = lot.randrange(7)
    s = {}
    if kind == 0:
        s["type"] = "string"
        if lot.random() < .4:
            s["minLength"] = lot.randrange(3)
        if lot.random() < .4:
            s["maxLength"] = s.get("minLength", 0) + lot.randrange(4)
        if lot.random() < .4:
            s["pattern"] = lot.choice(PATTERNS)
        elif lot.random() < .2:
            s["format"] = lot.choice(sorted(FORMATS))
    elif kind == 1:
        s["type"] = lot.choice(["number", "integer"])
        if lot.random() < .6:
            s[lot.choice(["minimum", "exclusiveMinimum"])] = lot.choice(NUMBERS)
        if lot.random() < .6:
            s[lot.choice(["maximum", "exclusiveMaximum"])] = lot.choice(NUMBERS)
    elif kind == 2:
        s["enum"] = [lot.choice(WORDS + NUMBERS + [None, True]) for _ in range(3)]
    elif kind == 3:
        s["const"] = lot.choice([None, True, 1, "a", [1, "b"], {"a": 1}])
    elif kind == 4:
        s["type"] = lot.choice(["boolean", "null", ["string", "null"]])
    elif kind == 5:
        s["minimum"] = lot.choice(NUMBERS)
        s["maxLength"] = 2
    return s


def schema(depth):
    kind = lot.randrange(8) if depth else 0
    if kind < 2:
        return scalar_schema()
    if kind < 5:
        names = lot.sample(NAMES, lot.randrange(1, 4))
        s = {"type": "object", "properties": {n: schema(depth - 1) for n in names}}
        if lot.random() < .5:
            s["required"] = lot.sample(names, lot.randrange(len(names) + 1))
        more = lot.random()
        if more < .4:
            s["additionalProperties"] = False
        elif more < .6:
            s["additionalProperties"] = scalar_schema()
        if lot.random() < .2:
            s["maxProperties"] = lot.randrange(1, 4)
        if lot.random() < .2:
            s["minProperties"] = lot.randrange(2)
        return s
    if kind == 5:
        s = {"type": "array"}
        if lot.random() < .7:
            s["items"] = schema(depth - 1)
        if lot.random() < .3:
            s["prefixItems"] = [schema(depth - 1) for _ in range(lot.randrange(1, 3))]
        if lot.random() < .4:
            s["minItems"] = lot.randrange(3)
        if lot.random() < .4:
            s["maxItems"] = s.get("minItems", 0) + lot.randrange(3)
        return s
    if kind == 6:
        return {"anyOf": [schema(depth - 1) for _ in range(2)]}
    return {"allOf": [schema(depth - 1) for _ in range(2)]}


def resolve(s, root):
    while isinstance(s, dict) and "$ref" in s:
        s = root if s["$ref"] == "#" else root["$defs"][s["$ref"].split("/")[-1]]
    return s


def value(depth):
    kind = lot.randrange(7 if depth else 5)
    if kind < 2:
        return lot.choice(WORDS)
    if kind == 2:
        return lot.choice(NUMBERS)
    if kind < 5:
        return lot.choice([None, True, False])
    if kind == 5:
        return [value(depth - 1) for _ in range(lot.randrange(3))]
    return {n: value(depth - 1) for n in lot.sample(NAMES, lot.randrange(3))}


def by_schema(s, root, depth=4):
    """A value that is often valid."""
    s = resolve(s, root)
    if not isinstance(s, dict) or depth < 0:
        return value(0)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in s and lot.random() < .9:
            return by_schema(lot.choice(s[key]), root, depth)
    if "enum" in s:
        return lot.choice(s["enum"])
    if "const" in s:
        return s["const"]
    kind = s.get("type")
    if isinstance(kind, list):
        kind = lot.choice(kind)
    if kind == "object" or "properties" in s:
        names = list(s.get("properties", {}))
        lot.shuffle(names)
        need = set(s.get("required", []))
        keep = [n for n in names if n in need or lot.random() < .6]
        out = {n: by_schema(s["properties"][n], root, depth - 1) for n in keep}
        if lot.random() < .3:
            out[lot.choice(NAMES)] = value(1)
        return out
    if kind == "array":
        n = s.get("minItems", 0) + lot.randrange(3)
        fixed = s.get("prefixItems", [])
        return [by_schema(fixed[i] if i < len(fixed) else s.get("items", True),
                          root, depth - 1) for i in range(n)]
    if kind in ("number", "integer"):
        return lot.choice(NUMBERS)
    return {"string": lot.choice(WORDS), "null": None,
            "boolean": lot.random() < .5}.get(kind, value(1))


def spell(v):
    """A spelling of the value: escapes, blanks, forms of numbers by lot."""
    gap = lambda: " " * lot.choice([0, 0, 0, 1, 3, 32]) if lot.random() < .2 else ""
    if isinstance(v, str):
        out = ""
        for c in v:
            if lot.random() < .1 and ord(c) < 0x10000:
                out += "\\u%04x" % ord(c)
            else:
                out += json.dumps(c, ensure_ascii=lot.random() < .3)[1:-1]
        return '"' + out + '"'
    if isinstance(v, bool) or v is None:
        return json.dumps(v)
    if isinstance(v, (int, Decimal)):
        text = format(v, "f") if isinstance(v, Decimal) else str(v)
        way = lot.randrange(6)
        if way == 0 and "." not in text:
            return text + ".0"
        if way == 1 and "." not in text:
            return text + "0e-1"
        if way == 2 and "." not in text:
            return text + "E+0"
        return text
    if isinstance(v, list):
        return "[" + gap() + ("," + gap()).join(spell(x) for x in v) + gap() + "]"
    return "{" + gap() + ",".join(
        gap() + spell(k) + gap() + ":" + gap() + spell(x) for k, x in v.items()) + gap() + "}"


def changed(text):
    """One change of the text by lot."""
    at = lot.randrange(len(text) + 1)
    kind = lot.randrange(4)
    if kind == 0:
        return text[:at] + lot.choice('{}[]",:0123456789.eE-+ntfu \\ab') + text[at:]
    if kind == 1:
        return text[:at] + text[at + 1:]
    if kind == 2:
        return text[:at] + text[at - 1:at] + text[at:]
    return text.replace(lot.choice(["1", "a", "true"]), lot.choice(["2", "b", "null"]), 1)


BY_HAND = [
    {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"$ref": "#/$defs/t"}},
        "additionalProperties": False}}},
    {"$defs": {"l": {"type": "array", "items": {"anyOf": [
        {"type": "null"}, {"$ref": "#/$defs/l"}]}, "maxItems": 2}}, "$ref": "#/$defs/l"},
    {"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "a": {"type": "integer"}},
                "required": ["k", "a"]},
               {"type": "object", "properties": {"k": {"const": "b"}, "b": {"type": "string"}},
                "required": ["k", "b"]}]},
    True, {}, {"type": "object"}, {"required": ["a"]}, {"items": {"type": "null"}},
]


def run(args, text=""):
    return subprocess.run([tool, *args], input=text, capture_output=True, text=True,
                          encoding="utf-8")


done = texts = good = 0
while done < count:
    s = BY_HAND[done] if done < len(BY_HAND) else schema(lot.randrange(4))
    path = folder + "/schema.json"
    plain = json.dumps(s, default=lambda d: float(d))
    with open(path, "w") as f:
        f.write(plain)
    root = json.loads(plain, parse_float=Decimal)
    validator = Validator(root)
    made = run(["make", path, "12", str(seed + done)])
    if made.returncode == 4:
        # Nothing is allowed, or branches overlap: is it so?
        if "allows no value" not in made.stdout:
            stop("refused", plain, made.stdout)
        for _ in range(60):
            text = spell(by_schema(root, root) if lot.random() < .7 else value(3))
            if valid(validator, text):
                stop("not empty", plain, text)
        if done >= len(BY_HAND):
            done += 1
            continue
        stop("refused", plain)
    if made.returncode:
        stop("make failed", plain, made.stderr)
    lines = made.stdout.split("\n")[:-1]
    for line in lines:
        if not valid(validator, line):
            stop("made, but not valid", plain, line)
    tried = []
    for _ in range(40):
        text = spell(by_schema(root, root) if lot.random() < .8 else value(3))
        tried += [text, changed(text)]
    for line in lines:
        tried += [line, changed(line)]
    tried = [t for t in tried if t and "\n" not in t and "\r" not in t]
    answer = run(["check", path], "\n".join(tried) + "\n").stdout.split()
    if len(answer) != len(tried):
        stop("check failed", plain)
    for text, took in zip(tried, answer):
        want = valid(validator, text)
        if (took == "1") != want:
            stop(plain, text, "taken %s, valid %s" % (took, want))
        texts += 1
        good += want
    done += 1
print(done, texts, good)
