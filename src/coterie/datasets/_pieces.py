"""Word pieces: a vocabulary made of the training texts alone, the same whoever makes it."""

import heapq
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

PAD, UNKNOWN, START, END = range(4)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
INSIDE = "##"
"""What begins a piece that does not begin a word."""


def words(text: str) -> list[str]:
    """The words of a text in lower case and without accents, each sign of punctuation for itself."""
    plain = (c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    return "".join(f" {c} " if unicodedata.category(c)[0] in "PS" else c for c in plain).split()


def vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """So many pieces: the letters, then again and again the most frequent pair of neighbours, of equals the first.

    No library's trainer is used: what they give depends on the order of a hash table, and so on the process.
    """
    counts = Counter(word for text in texts for word in words(text))
    split = {word: [word[0], *(INSIDE + c for c in word[1:])] for word in counts}
    letters = sorted({piece for pieces in split.values() for piece in pieces})
    found = dict.fromkeys([*SPECIAL, *letters])
    pairs: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for word, pieces in split.items():
        for pair in pairwise(pieces):
            pairs[pair] += counts[word]
            where[pair].add(word)
    queue = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(queue)
    while len(found) < size and queue:
        count, pair = heapq.heappop(queue)
        if -count != pairs[pair] or not count:  # it has changed since it was queued
            continue
        joined = pair[0] + pair[1].removeprefix(INSIDE)
        found[joined] = None
        for changed in _join(pair, joined, sorted(where[pair]), split, counts, pairs, where):
            heapq.heappush(queue, (-pairs[changed], changed))
    return list(found)[:size]


def _join(
    pair: tuple[str, str],
    joined: str,
    inside: Sequence[str],
    split: dict[str, list[str]],
    counts: Counter[str],
    pairs: Counter[tuple[str, str]],
    where: defaultdict[tuple[str, str], set[str]],
) -> set[tuple[str, str]]:
    """Make one piece of a pair in all words that have it; the pairs that are more or less frequent now."""
    changed = set()
    for word in inside:
        old = split[word]
        new, at = [], 0
        while at < len(old):
            together = tuple(old[at : at + 2]) == pair
            new.append(joined if together else old[at])
            at += 2 if together else 1
        for pieces, sign in ((old, -1), (new, 1)):
            for near in pairwise(pieces):
                pairs[near] += sign * counts[word]
                where[near].add(word)
                changed.add(near)
        split[word] = new
    return changed - {pair}


def encode(text: str, known: dict[str, int], length: int) -> list[int]:
    """The pieces of a text by number, in the longest there are, between marks of start and end; cut to a length."""
    found = [START]
    for word in words(text):
        found += _pieces(word, known)
    return [*found[: length - 1], END]


def _pieces(word: str, known: dict[str, int]) -> list[int]:
    found, at = [], 0
    while at < len(word):
        mark = INSIDE if at else ""
        ends = (end for end in range(len(word), at, -1) if mark + word[at:end] in known)
        if (end := next(ends, None)) is None:
            return [UNKNOWN]
        found.append(known[mark + word[at:end]])
        at = end
    return found
