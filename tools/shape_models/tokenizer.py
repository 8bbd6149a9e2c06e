"""A byte-pair vocabulary in CLIP's format in which each of our words is one token."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

UNKNOWN = "<|unk|>"
BEGIN = "<|startoftext|>"
END = "<|endoftext|>"
LENGTH = 32
"""Tokens of a prompt, begin and end included; longer prompts are cut."""

_PIECES = re.compile(r"[a-z]+|[^\sa-z]")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens with their numbers, and the merges that lead to them, most urgent first."""

    tokens: dict[str, int]
    merges: tuple[tuple[str, str], ...]

    @property
    def begin(self) -> int:
        return self.tokens[BEGIN]

    @property
    def end(self) -> int:
        return self.tokens[END]

    def encode(self, prompt: str) -> npt.NDArray[np.int16]:
        """The tokens of a prompt made of known words, padded with the end token [32]."""
        ids = np.full(LENGTH, self.end, np.int16)
        ids[0] = self.begin
        words = _PIECES.findall(prompt.lower())[: LENGTH - 2]
        ids[1 : 1 + len(words)] = [self.tokens[f"{word}</w>"] for word in words]
        return ids


def learn_vocabulary(words: list[str]) -> Vocabulary:
    """Merges the commonest pair (ties by spelling) until every word is one token."""
    spellings = {word: [*word[:-1], f"{word[-1]}</w>"] for word in words}
    merges: list[tuple[str, str]] = []
    while any(len(parts) > 1 for parts in spellings.values()):
        pairs = Counter(pair for parts in spellings.values() for pair in pairwise(parts))
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for parts in spellings.values():
            _merge(parts, best)
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    tokens: dict[str, int] = {}
    for token in (
        *characters,
        *(f"{character}</w>" for character in characters),
        *("".join(pair) for pair in merges),
        UNKNOWN,
        BEGIN,
        END,
    ):
        tokens.setdefault(token, len(tokens))
    return Vocabulary(tokens, tuple(merges))


def _merge(parts: list[str], pair: tuple[str, str]) -> None:
    k = 0
    while k + 1 < len(parts):
        if (parts[k], parts[k + 1]) == pair:
            parts[k : k + 2] = ["".join(pair)]
        k += 1
