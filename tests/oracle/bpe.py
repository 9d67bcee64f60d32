"""A vocabulary, texts and their ids by an implementation that shares nothing
with ours: K3's expression run by a regular expression engine over the classes
of the characters, and the merges as they are defined.

    bpe.py FOLDER SEED     writes tiktoken.model and tokenizer_config.json;
                           {plain,special}.texts, a JSON string a line; .ids
    bpe.py --golden tiktoken.model golden.tsv
                           is it right about ids of the reference tokenizer?

The classes are of the Unicode that Python knows; the texts use old characters.
"""
import base64
import json
import random
import re
import sys
import unicodedata

TOKENS = 163584  # as K3: the specials follow
SPECIALS = {0: '[BOS]', 1: '[EOS]', 2: '<|end_of_msg|>', 3: '<|open|>',
            4: '<|close|>', 5: '<|sep|>', 65: '<osagent_mode>', 254: '[UNK]',
            255: '[PAD]'}
HAN = ((0x2e80, 0x2e99), (0x2e9b, 0x2ef3), (0x2f00, 0x2fd5), (0x3005, 0x3005),
       (0x3007, 0x3007), (0x3021, 0x3029), (0x3038, 0x303b), (0x3400, 0x4dbf),
       (0x4e00, 0x9fff), (0xf900, 0xfa6d), (0xfa70, 0xfad9),
       (0x20000, 0x2a6df))
WHITE = {*range(9, 14), 32, 0x85, 0xa0, 0x1680, *range(0x2000, 0x200b), 0x2028,
         0x2029, 0x202f, 0x205f, 0x3000}


# ---- cutting a text into pieces ----
# Every character is one of few kinds: whether it is Han, the group of its
# category, white space, and itself where the expression names it. A text is
# translated to one letter a kind, and the expression to sets of those letters.
kinds = {}


def kind(c):
    cp = ord(c)
    category = unicodedata.category(c)
    group = category if category in ('Lu', 'Lt', 'Ll', 'Lm', 'Lo') else \
        category[0]
    lower = 's' if c == '\u017f' else c.lower() if cp < 128 else ''
    named = lower if lower in tuple("'strevmld\r\n ") else ''
    key = (any(a <= cp <= b for a, b in HAN), group, cp in WHITE, named)
    return kinds.setdefault(key, chr(0xe000 + len(kinds)))


def expression():
    """After the kinds of a text are known."""
    def one(test):
        return '[' + ''.join(v for k, v in kinds.items() if test(*k)) + '\0]'

    def is_letter(group):
        return group[0] == 'L'

    han = one(lambda h, g, w, n: h)
    prefix = one(lambda h, g, w, n: n not in ('\r', '\n') and
                 not is_letter(g) and g != 'N') + '?'
    capital = one(lambda h, g, w, n: not h and
                  g in ('Lu', 'Lt', 'Lm', 'Lo', 'M'))
    small = one(lambda h, g, w, n: not h and g in ('Ll', 'Lm', 'Lo', 'M'))
    number = one(lambda h, g, w, n: g == 'N')
    space = one(lambda h, g, w, n: n == ' ')
    other = one(lambda h, g, w, n: not w and not is_letter(g) and g != 'N')
    end = one(lambda h, g, w, n: n in ('\r', '\n') and n != '')
    white = one(lambda h, g, w, n: w)
    black = one(lambda h, g, w, n: not w)

    def letters(word):
        return ''.join(one(lambda h, g, w, n, c=c: n == c) for c in word)
    short = '(?:%s)?' % '|'.join(
        letters("'" + w) for w in ('s', 't', 're', 've', 'm', 'll', 'd'))
    return re.compile('|'.join((
        han + '+', prefix + capital + '*' + small + '+' + short,
        prefix + capital + '+' + small + '*' + short, number + '{1,3}',
        space + '?' + other + '+' + end + '*', white + '*' + end + '+',
        white + '+(?!' + black + ')', white + '+')))


cached = {}


def pieces(text):
    translated = ''.join(map(kind, text))
    if len(kinds) not in cached:
        cached[len(kinds)] = expression()
    at = 0
    for match in cached[len(kinds)].finditer(translated):
        assert match.start() == at
        at = match.end()
        yield text[match.start():at].encode()
    assert at == len(text)


# ---- merging ----
def merge(piece, rank):
    """The pair of lowest rank, the leftmost of them, until there is none."""
    if piece in rank:
        return [piece]
    parts = [piece[i:i + 1] for i in range(len(piece))]
    while True:
        ranks = [(rank[a + b], i) for i, (a, b) in
                 enumerate(zip(parts, parts[1:])) if a + b in rank]
        if not ranks:
            return parts
        i = min(ranks)[1]
        parts[i:i + 2] = [parts[i] + parts[i + 1]]


def encode(text, rank):
    return [rank[t] for p in pieces(text) for t in merge(p, rank)]


def encode_special(text, rank):
    """Where a special token stands, it is one."""
    names = {name: TOKENS + at for at, name in SPECIALS.items()}
    ids = []
    for part in re.split('(%s)' % '|'.join(map(re.escape, names)), text):
        ids += [names[part]] if part in names else encode(part, rank)
    return ids


# ---- making ----
SCRIPTS = ((0x41, 0x5a), (0x61, 0x7a), (0x61, 0x7a), (0xc0, 0xff),
           (0x391, 0x3a1), (0x3b1, 0x3c9), (0x410, 0x44f), (0x5d0, 0x5ea),
           (0x627, 0x64a), (0x660, 0x669), (0x905, 0x939), (0x93e, 0x94c),
           (0xe01, 0xe30), (0x10a0, 0x10c5), (0x1e00, 0x1eff), (0x300, 0x36f),
           (0x3041, 0x3093), (0x30a1, 0x30f6), (0xac00, 0xac40),
           (0x4e00, 0x4e80), (0x2e80, 0x2e99), (0x3021, 0x3029),
           (0x20000, 0x20010), (0x30, 0x39), (0x30, 0x39), (0x2160, 0x2170),
           (0x1f600, 0x1f620), (0x21, 0x2f), (0x5b, 0x60))
SHORT = ("'s", "'T", "'re", "'VE", "'m", "'ll", "'D", "'\u017f", "'", '\u2019s')
BLANKS = (' ', ' ', ' ', ' ', '  ', '\n', '\r\n', '\n\n', '\t', ' \n ', '   ',
          '\xa0', '\u3000', '', '')


def make_text(r, words):
    text = ''
    for _ in range(r.randrange(1, 30)):
        text += r.choice(words) if r.random() < 0.7 else \
            make_word(r) if r.random() < 0.7 else \
            ''.join(make_word(r)[:1] for _ in range(6))
        if r.random() < 0.15:
            text += r.choice(SHORT)
        text += r.choice(BLANKS)
    return text


def make_word(r):
    first, last = r.choice(SCRIPTS)
    word = ''.join(chr(r.randint(first, last))
                   for _ in range(r.randrange(1, 9)))
    return word.capitalize() if r.random() < 0.2 else word


def make_vocabulary(r, texts):
    """Single bytes in any order; pairs that occur; strings that do not."""
    tokens = [bytes([b]) for b in range(256)]
    r.shuffle(tokens)
    rank = {t: i for i, t in enumerate(tokens)}
    some = [p for t in texts for p in pieces(t)]
    for _ in range(20000):
        parts = merge(r.choice(some), rank)
        if len(parts) > 1:
            i = r.randrange(len(parts) - 1)
            rank.setdefault(parts[i] + parts[i + 1], len(rank))
    while len(rank) < TOKENS:
        rank.setdefault(r.randbytes(r.randrange(3, 12)), len(rank))
    return rank


def make(folder, seed):
    r = random.Random(seed)
    words = [make_word(r) for _ in range(300)]
    texts = [make_text(r, words) for _ in range(1500)]
    rank = make_vocabulary(r, texts[:700])
    with open(folder + '/tiktoken.model', 'wb') as f:
        for token, i in rank.items():
            f.write(base64.b64encode(token) + b' %d\n' % i)
    with open(folder + '/tokenizer_config.json', 'w') as f:
        json.dump({'added_tokens_decoder': {
            str(TOKENS + at): {'content': name, 'special': True}
            for at, name in SPECIALS.items()}}, f)
    special = [''.join(p + r.choice(('', r.choice(list(SPECIALS.values()))))
                       for p in t.split(' ')) for t in texts[:300]]
    merged = 0
    for name, lines, how in (('plain', texts, encode),
                             ('special', special, encode_special)):
        with open('%s/%s.texts' % (folder, name), 'w') as t, \
                open('%s/%s.ids' % (folder, name), 'w') as i:
            for text in lines:
                ids = how(text, rank)
                merged += len(text.encode()) - len(ids)
                t.write(json.dumps(text) + '\n')
                i.write(','.join(map(str, ids)) + '\n')
    assert merged > 10000, 'the vocabulary merges next to nothing'
    print('# seed %d: %d texts, %d merges' % (seed, 1800, merged))


def check_golden(model, golden):
    """What stands in for the reference here, against the reference itself."""
    rank = {}
    for line in open(model, 'rb'):
        token, i = line.split()
        rank[base64.b64decode(token)] = int(i)
    wrong = 0
    for line in open(golden):
        text, ids = line.rstrip('\n').split('\t')
        text = bytes.fromhex(text).decode()
        wrong += encode(text, rank) != [int(i) for i in ids.split(',') if i]
    print('# %d of golden.tsv differ' % wrong)
    return wrong


if __name__ == '__main__':
    if sys.argv[1] == '--golden':
        sys.exit(bool(check_golden(*sys.argv[2:])))
    make(sys.argv[1], int(sys.argv[2]))
