"""Questions drafted from a corpus's own passages and edges, and their file: training without a single judgement."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import BaseModel, Field

from graphrerank.checks import UserError, check_counts
from graphrerank.data.readers.records import Id, Written, bad_line, checked, read_jsonl
from graphrerank.graphs import CorpusGraph
from graphrerank.text import split_sentences
from graphrerank.text.languages import CHARACTERS, ENGLISH, UNSPACED, language_of
from graphrerank.text.stems import STOP_WORDS

SHARE_SINGLE = 0.25  # of the questions: words of one passage, which alone is relevant
SHARE_EVEN = 0.35  # words of two joined passages, some of each; the others name one passage and hint at the other
SHARE_THIRD = 0.15  # of those of two: a neighbour of the second one joins them
SHARE_WITHOUT_SHARED = 0.6  # of those of two: no word that both hold, so that only the edge connects the halves
SHARE_SHUFFLED = 0.3  # of those of two: in no order

MIN_WORDS = 2  # of a question; one with fewer is left out
MAX_TITLE = 6  # words of a title that a question takes
FREQUENT = 0.1  # a short word in a larger share of the passages is in no question
SHORT = 6  # letters

_LINK_TARGET = re.compile(r"(?<=\])\([^()\s]*[/.#][^()\s]*\)")  # of Markdown: a path or an address
_WORD = re.compile(r"[^\W_]+")
# of scripts without spaces, whose runs are whole clauses: pairs of characters, as they are matched
_SHORT_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W_{UNSPACED}]+")


class Draft(NamedTuple):
    """A drafted question: its text, and the numbers of its relevant passages."""

    text: str
    nodes: list[int]


def draft_questions(graph: CorpusGraph, count: int, *, seed: int = 0) -> list[Draft]:
    """Draft at most ``count`` questions whose relevant passages are known, because their words were taken from these.

    A question is a few words of one passage, or of two or three that edges join: then only passages that cover its
    words *together* are relevant, which is what a reranker over a graph has to learn. Half of the latter name the first
    passage by its title and take one or two common words of the other, which no retriever finds by them: it is found
    along the edge. Edges are drawn evenly from their types, so that no type is what makes passages relevant.

    Ours. A model trained on them, and on judged tables and single-hop questions, but on no multi-hop question, gains 13
    points of PR@10 on 2WikiMultihopQA (docs/left_out.md).
    """
    check_counts(count=count)
    return list(_Drafter(graph, random.Random(seed)).questions(count))


class _Drafter:
    """Draws questions from a corpus."""

    def __init__(self, graph: CorpusGraph, rng: random.Random) -> None:
        self.graph, self.rng = graph, rng
        language = graph.passages.language
        self.word = _SHORT_WORD if language == CHARACTERS else _WORD
        self.stop_words = STOP_WORDS if language == ENGLISH else language_of(language).stop_words
        self.passages_with: Counter[str] = Counter()
        for text in graph.texts:
            self.passages_with.update({word.lower() for word in self.word.findall(text)})
        pairs, _, types = graph.typed_edges()
        self.pairs_of_types = [pairs[types == number].tolist() for number in torch.unique(types).tolist()]

    def questions(self, count: int) -> Iterator[Draft]:
        for _ in range(count):
            kind = self.rng.random()
            if kind < SHARE_SINGLE or not self.pairs_of_types:
                nodes = [self.rng.randrange(self.graph.num_nodes)]
                parts = [self._draw(nodes[0], self.rng.randint(3, 9))]
            else:
                nodes, parts = self._joined(is_even=kind < SHARE_SINGLE + SHARE_EVEN)
            words = [word for part in parts for word in part]
            if len(words) >= MIN_WORDS and all(parts):
                yield Draft(" ".join(words), nodes)

    def _joined(self, *, is_even: bool) -> tuple[list[int], list[list[str]]]:
        """Draw two or three passages that edges join, and words of each."""
        rng = self.rng
        nodes = list(rng.choice(rng.choice(self.pairs_of_types)))
        without = set[str]()
        if rng.random() < SHARE_WITHOUT_SHARED:
            words = (self.word.findall(self.graph.texts[node]) for node in nodes)
            without = set.intersection(*({word.lower() for word in found} for found in words))
        if rng.random() < SHARE_THIRD:
            further = [node for node in self.graph.neighbours(torch.tensor(nodes[1:]))[1].tolist() if node not in nodes]
            nodes += [rng.choice(further)] if further else []
        if is_even:
            parts = [self._draw(node, rng.randint(2, 5), without) for node in nodes]
        else:
            named, *hinted = nodes
            title = self._telling(self.word.findall(self.graph.passages.title(named)))
            hints = [self._draw(node, rng.randint(1, 2), without, common=True) for node in hinted]
            parts = [[*self._draw(named, rng.randint(1, 3), without), *title[:MAX_TITLE]], *hints]
        rng.shuffle(parts)
        if rng.random() < SHARE_SHUFFLED and all(parts):
            joined = [word for part in parts for word in part]
            rng.shuffle(joined)
            parts = [joined]
        return nodes, parts

    def _draw(self, node: int, count: int, without: Set[str] = frozenset(), *, common: bool = False) -> list[str]:
        """Draw words of one to three sentences of a passage, in their order: rare ones rather than common ones."""
        text, rng = _LINK_TARGET.sub("", self.graph.texts[node]), self.rng
        sentences = [text[start:stop] for start, stop in split_sentences(text)]
        drawn = rng.sample(sentences, min(len(sentences), rng.choice([1, 2, 2, 3])))
        words = dict.fromkeys(word for sentence in drawn for word in self._telling(self.word.findall(sentence)))
        choice = [word for word in words if word.lower() not in without]
        rarity = [math.log1p(self.graph.num_nodes / self.passages_with[word.lower()]) for word in choice]
        keys = [rng.random() * (1 / weight if common else weight) for weight in rarity]
        kept = sorted(range(len(choice)), key=keys.__getitem__, reverse=True)[:count]
        return [choice[place] for place in sorted(kept)]

    def _telling(self, words: Sequence[str]) -> list[str]:
        """Leave out single letters, and short words that many passages hold."""
        limit = max(1, FREQUENT * self.graph.num_nodes)
        return [
            word
            for word in words
            if len(word) > 1
            and word.lower() not in self.stop_words
            and not (len(word) <= SHORT and self.passages_with[word.lower()] > limit)
        ]


DRAFTED = "drafted.jsonl"  # a separate file, so that nothing takes drafts for judged questions


class _Question(BaseModel):
    text: Written
    relevant: list[Id] = Field(min_length=1)


def read_drafted(path: Path, node_number: Mapping[str, int]) -> list[Draft]:
    """Read ``{"text": "...", "relevant": ["d1", ...]}``, one a line; other keys are ignored.

    A question that needs a document that is left out (a negative node number) is left out, too. If a line is malformed,
    an id is not in the corpus, or no question is left, a ValueError names file and line.
    """
    drafts = []
    for line, record in read_jsonl(path):
        question = checked(path, line, record, _Question)
        if unknown := [doc_id for doc_id in question.relevant if doc_id not in node_number]:
            raise bad_line(path, line, needed="`relevant`: ids of the corpus", found=unknown[0])
        nodes = [node_number[doc_id] for doc_id in dict.fromkeys(question.relevant)]
        if min(nodes) >= 0:
            drafts.append(Draft(question.text, nodes))
    if not drafts:
        raise UserError(f"{path}: needed a question with documents of the corpus that are kept, found none")
    return drafts
