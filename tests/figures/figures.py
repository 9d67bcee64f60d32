"""Figures in texts of commands that do not follow model/ckpt/figure.h.

    figures.py FILE...    prints "FILE: what, in which line"; 1 if there is one
"""
import re
import sys

NUMBER = r"(?<![\w.,/-])(\d+\.?\d*(?:e[-+]\d+)?)"
UNITS = (r"(?:GB/s|GiB|MiB|GB|MB|ms|µs|s/token|tokens/s|min|s a token|s a GiB|"
         r"s)(?![\w/'])")
NOUNS = (r"threads|tokens|rows|passes|drives|files|runs|requests|lines|layers|"
         r"experts|tensors|processors|digests|shards|frames|ids|errors")


def digits(number):
    """Significant ones."""
    return len(re.sub(r"e.*|\.", "", number).lstrip("0"))


def wrong(line):
    for m in re.finditer(NUMBER, line):
        if re.fullmatch(r"0\.0*", m[1]):
            yield m[1] + " is no figure"
    for m in re.finditer(NUMBER + " (?=" + UNITS + ")", line):
        if "." in m[1] and digits(m[1]) > 3:
            yield m[0] + "has too many digits"
    for m in re.finditer(NUMBER + r" (GB of memory|GiB read|MB of memory)", line):
        yield m[0] + ": memory is in GiB, what is read in GB"
    for m in re.finditer(r"(?<![\w.,])1 (%s)\b" % NOUNS, line):
        yield m[0]


def text_of(path):
    text = open(path, encoding="utf-8", errors="replace").read()
    if path.endswith(".html"):
        text = re.sub(r"(?s)<(style|script).*?</\1>", "", text)
        text = re.sub(r"<[^>]*>", "\n", text)
    return text


bad = [(path, why, line.strip()) for path in sys.argv[1:]
       for line in re.split(r"[\n\r]", text_of(path)) for why in wrong(line)]
for path, why, line in bad:
    print("# %s: %s, in: %s" % (path, why, line[:120]))
sys.exit(bool(bad))
