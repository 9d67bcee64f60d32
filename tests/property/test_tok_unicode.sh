#!/bin/sh
# Goal    the frozen table says what Unicode says, and its generator reads both
#         of its sources.
# Method  Python's own tables give every character that they know the same
#         category; a small npm package and the same characters as text files
#         give one table; Debian's unicode-data, where installed, gives each of
#         its letters, marks and numbers the flags of the frozen table.
cd "$(dirname "$0")/../.." || exit 1
. tests/tap.sh
generator=model/text/tok_unicode.py
table=model/text/tok_unicode.c

cat > "$D/load.py" << 'END'
import re, unicodedata
CATEGORY = {"Lu": 10, "Lt": 10, "Ll": 12, "Lm": 14, "Lo": 14, "Mn": 6,
            "Mc": 6, "Me": 6, "Nd": 16, "Nl": 16, "No": 16}
def load(path):
    runs = [int(x, 16) for x in re.findall(r"0x([0-9a-f]+),",
                                           open(path).read())]
    table = []
    for run, following in zip(runs, runs[1:] + [0x110000 << 8]):
        table += [run & 255] * ((following >> 8) - (run >> 8))
    return table
END

cat > "$D/python.py" << 'END'
import sys
from load import *
table, wrong = load(sys.argv[1]), []
for c in range(0x110000):
    category = unicodedata.category(chr(c))
    want, have = CATEGORY.get(category, 0), table[c] & 31
    if have & 1: # Han: neither capital nor small
        want = want & ~6 | 1
    if category != "Cn" and want != have and c != 0x295: # changed in 17
        wrong.append("U+%04X" % c)
print("Unicode", unicodedata.unidata_version, wrong[:9])
sys.exit(bool(wrong) or len(table) != 0x110000)
END
python3 "$D/python.py" $table > "$D/out" 2>&1
verdict $? "the categories are those of Python"

mkdir -p "$D/text" "$D/npm"
printf '# Scripts-15.1.0.txt\n4E00..9FFF ; Han # Lo\n' > "$D/text/Scripts.txt"
printf '0020 ; White_Space # Zs\n' > "$D/text/PropList.txt"
printf '%s\n' '0020;SPACE;Zs;0' '0031;DIGIT ONE;Nd;0' '0041;A;Lu;0' \
    '0061;a;Ll;0' '0062;b;Ll;0' '0300;GRAVE;Mn;230' \
    '4E00;<CJK Ideograph, First>;Lo;0' '9FFF;<CJK Ideograph, Last>;Lo;0' \
    > "$D/text/UnicodeData.txt"
echo '{"name": "@unicode/unicode-15.1.0"}' > "$D/npm/package.json"
ranges() { # folder packed; gap - 1 and length - 1 as digits of base 64
    mkdir -p "$D/npm/$1"
    echo "export default decodeRanges('$2');" > "$D/npm/$1/ranges.mjs"
}
for name in Titlecase_Letter Modifier_Letter Spacing_Mark Enclosing_Mark \
    Letter_Number Other_Number; do
    ranges General_Category/$name ''
done
ranges General_Category/Decimal_Number gxA   # 49: 32 + 0, 49
ranges General_Category/Uppercase_Letter hBA # 65
ranges General_Category/Lowercase_Letter hhB # 97, two
ranges General_Category/Nonspacing_Mark sAA  # 768
ranges General_Category/Other_Letter 04A1H_
ranges Script/Han 04A1H_ # 0x4e00, 0x5200 of them
ranges Binary_Property/White_Space ggA       # 32
for kind in text npm; do
    python3 $generator "$D/$kind" > "$D/$kind.c" 2>> "$D/err"
done
cmp "$D/text.c" "$D/npm.c" > "$D/out" 2>&1 &&
    grep -q '"15.1.0"' "$D/text.c" && grep -q ' 0x4e0009,' "$D/text.c" &&
    grep -q ' 0xa00000,' "$D/text.c" && grep -q ' 0x610c, 0x6300,' "$D/text.c"
verdict $? "an npm package and text files give one table"

if [ -f /usr/share/unicode/UnicodeData.txt ]; then
    python3 $generator /usr/share/unicode > "$D/debian.c" 2> "$D/err"
    PYTHONPATH=$D python3 -c 'import sys
from load import *
a, b = load(sys.argv[1]), load(sys.argv[2])
sys.exit(any(x and x != y and c != 0x295
             for c, (x, y) in enumerate(zip(a, b))))' "$D/debian.c" $table
    verdict $? "the characters of Debian's unicode-data are in the table"
else
    skip "the characters of Debian's unicode-data" "it is not installed"
fi
echo 1..$n
