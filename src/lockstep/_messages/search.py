"""Search for the page of an error by words of its text."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from lockstep._messages.sources import Message

_VALUE = re.compile(r"<\w+>")
_WORD = re.compile(r"[a-z_0-9]+")
# Where the next sentence begins.
_SENTENCE = re.compile(r"(?<=[.:])\s")
# Words and pairs of words: the same words in another order are another message.
_Features: TypeAlias = frozenset[str]


class MessageIndex:
    """All messages, by the words in them.

    Args:
        messages: The messages, with <names> in the places of values.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        # A message that is looked up in part is found by its first sentence, which states the rule.
        self._forms = [(features, m.page) for m in messages for features in {_features(t) for t in _forms(m.text)}]
        self._of: dict[str, list[int]] = defaultdict(list)
        for number, (features, _) in enumerate(self._forms):
            for feature in features:
                self._of[feature].append(number)
        # How much a feature tells: the logarithm of one over the part of the messages that have it.
        self._weights = {feature: math.log(1 + len(self._forms) / len(at)) for feature, at in self._of.items()}
        self._sizes = [self._weight(features) for features, _ in self._forms]

    def pages_for(self, text: str) -> list[str]:
        """Returns the names of the pages with the messages that are nearest to a text, the nearest first.

        Args:
            text: A message as a program has shown it, its first sentence, or some of its words.
        """
        best: dict[str, float] = {}
        for form in _forms(text):
            # What no message has is a value in this one: it must not count against the right one.
            wanted = {feature for feature in _features(form) if feature in self._of}
            shared: dict[int, float] = defaultdict(float)
            for feature in wanted:
                for number in self._of[feature]:
                    shared[number] += self._weights[feature]
            size = self._weight(wanted)
            for number, weight in shared.items():
                page = self._forms[number][1]
                # Dice's coefficient: what both have beside the mean of what each has.
                best[page] = max(best.get(page, 0.0), 2 * weight / (size + self._sizes[number]))
        return sorted(best, key=lambda page: (-best[page], page))

    def _weight(self, features: Iterable[str]) -> float:
        return sum(self._weights[feature] for feature in features)


def _forms(text: str) -> tuple[str, str]:
    return text, _SENTENCE.split(text, maxsplit=1)[0]


def _features(text: str) -> _Features:
    found: set[str] = set()
    # Beside a value nothing is a pair: what stood there differs each time.
    for part in _VALUE.split(text.lower()):
        words = _WORD.findall(part)
        found.update(words)
        found.update(f"{a} {b}" for a, b in itertools.pairwise(words))
    return frozenset(found)
