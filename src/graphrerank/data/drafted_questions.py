"""Questions drafted from a corpus's own passages and edges, and their file: training without a single judgement."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import BaseModel, Field

from graphrerank.checks import UserError, check_counts
from graphrerank.data.drafted_wording import Wording, Writer
from graphrerank.data.readers.documents import split_passage
from graphrerank.data.readers.records import Id, Written, bad_line, checked, read_jsonl
from graphrerank.graphs import CorpusGraph
from graphrerank.text.languages import CHARACTERS, UNSPACED

SHARE_SINGLE = 0.25  # of the questions: of one passage, which alone is relevant
SHARE_EVEN = 0.35  # of two joined passages, phrases of each; the others name one passage and hint at the other
SHARE_THIRD = 0.15  # of those of two: a neighbour of the second one joins them
SHARE_WITHOUT_SHARED = 0.6  # of those of two: no word that both hold, so that only the edge connects the halves
SHARE_ASKED = 0.7  # of those of one passage, where it suggests a whole question: that one, else keywords
SHARE_TOPIC = 0.5  # of the even ones: the second half is the name of its passage
MIN_WORDS, MAX_WORDS = 2, 14  # of a question, of each of its passages at most
FREQUENT = 0.02  # a question has a word that at most this share of the passages (or two) hold
LONG = 12  # letters of a word that says enough alone
SAME_START = 6  # letters; a question has no two words that begin with the same
TRIES = 8  # draws for each question
FEW = 0.2  # share of the questions that passages of any kind suggest, below which passages of any kind are asked for
DRAFTED = "drafted.jsonl"  # a separate file, so that nothing takes drafts for judged questions

_NAMING = re.compile(r"[a-z\d][A-Z]|[A-Z]{2}|\w[._-]\w|\d")
_WORD = re.compile(r"[^\W_]+")
# of scripts without spaces, whose runs are whole clauses: pairs of characters, as they are matched
_SHORT_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W_{UNSPACED}]+")


class Draft(NamedTuple):
    """A drafted question: its text, and the numbers of its relevant passages."""

    text: str
    nodes: list[int]


def draft_questions(graph: CorpusGraph, count: int, *, seed: int = 0) -> list[Draft]:
    """Draft at most ``count`` questions whose relevant passages are known, because their words were taken from these.

    A question is of one passage, in the words of its headings and sentences, or joins phrases of two or three passages
    between which there are edges: then only passages that cover its words *together* are relevant, which is what a
    reranker over a graph has to learn. Half of the latter name the first passage and take a common phrase of the other,
    which no retriever finds by it: it is found along the edge. Edges are drawn evenly from their types, so that no type
    is what makes passages relevant. Passages that nobody asks for (changelogs, licences, lists of names) are left out
    (:mod:`~graphrerank.data.drafted_wording`), unless nearly all are such, as the tables of a schema are.

    Ours. A model trained on an earlier wording of them, and on judged tables and single-hop questions, but on no
    multi-hop question, gains 13 points of PR@10 on 2WikiMultihopQA (docs/left_out.md).
    """
    check_counts(count=count)
    drafts = list(_Drafter(graph, random.Random(seed)).questions(count))
    if len(drafts) < count * FEW:
        others = list(_Drafter(graph, random.Random(seed), is_strict=False).questions(count))
        return others if len(drafts) < len(others) * FEW else drafts
    return drafts


class _Drafter:
    """Draws questions from a corpus."""

    def __init__(self, graph: CorpusGraph, rng: random.Random, *, is_strict: bool = True) -> None:
        self.graph, self.rng = graph, rng
        language = graph.passages.language
        self.word = _SHORT_WORD if language == CHARACTERS else _WORD
        self.writer = Writer(language, graph.texts, is_strict=is_strict)
        self.words_of = [{word.lower() for word in self.word.findall(text)} for text in graph.texts]
        self.passages_with = Counter(word for words in self.words_of for word in words)
        pairs, _, types = graph.typed_edges()
        self.pairs_of_types = [pairs[types == number].tolist() for number in torch.unique(types).tolist()]
        self.wording = cache(self._wording)

    def questions(self, count: int) -> Iterator[Draft]:
        seen: set[str] = set()
        for _ in range(TRIES * count):
            if len(seen) == count:
                return
            kind = self.rng.random()
            if kind < SHARE_SINGLE or not self.pairs_of_types:
                nodes = [self.rng.randrange(self.graph.num_nodes)]
                text = self._single(nodes[0])
            else:
                nodes, text = self._joined(is_even=kind < SHARE_SINGLE + SHARE_EVEN)
            if text is not None and text not in seen and self._is_question(text, nodes):
                seen.add(text)
                yield Draft(text, nodes)

    def _is_question(self, text: str, nodes: Sequence[int]) -> bool:
        words = self.word.findall(text.lower())
        limit = max(2, FREQUENT * self.graph.num_nodes)
        content = [word for word in words if word not in self.writer.stop_words]
        if self.writer.is_strict and self.word is _WORD and len({word[:SAME_START] for word in content}) < len(content):
            return False
        is_rare = any(0 < self.passages_with[word] <= limit for word in content)
        return is_rare and MIN_WORDS <= len(words) <= MAX_WORDS * len(nodes)

    def _wording(self, node: int) -> Wording | None:
        title, text = split_passage(self.graph.texts[node], len(self.graph.passages.title(node)))
        return self.writer.wording(title, text, self.graph.node_ids[node])

    def _single(self, node: int) -> str | None:
        wording = self.wording(node)
        if wording is None:
            return None
        if wording.questions and self.rng.random() < SHARE_ASKED:
            return self.rng.choice(wording.questions)
        phrases = [wording.name, *self._phrases(wording, 1)] if wording.name else self._phrases(wording, 2)
        return " ".join(dict.fromkeys(word for phrase in phrases for word in phrase.split()))

    def _joined(self, *, is_even: bool) -> tuple[list[int], str | None]:
        """Draw two or three passages that edges join, and phrases of each, which fill a template."""
        rng, templates = self.rng, self.writer.templates
        nodes = list(rng.choice(rng.choice(self.pairs_of_types)))
        rng.shuffle(nodes)
        without = set[str]()
        if rng.random() < SHARE_WITHOUT_SHARED:
            without = set.intersection(*(self.words_of[node] for node in nodes))
        if rng.random() < SHARE_THIRD:
            further = [node for node in self.graph.neighbours(torch.tensor(nodes[1:]))[1].tolist() if node not in nodes]
            nodes += [rng.choice(further)] if further else []
        wordings = [wording for node in nodes if (wording := self.wording(node)) is not None]
        if len(wordings) < len(nodes):
            return nodes, None
        first, *others = wordings
        halves = [self._phrases(other, 1, without, common=not is_even) for other in others]
        topic = others[0].name
        if is_even and topic and rng.random() < SHARE_TOPIC and not without & set(topic.lower().split()):
            halves[0] = [topic]
        if not is_even and first.name:
            start, forms = [first.name], templates.hinted
        else:
            is_guide = any(" I " in question for wording in wordings for question in wording.questions)
            start = self._phrases(first, 1, without)
            forms = [form for form in templates.joined if is_guide or not form.startswith("how")]
        if not start or not all(halves):
            return nodes, None
        second, *third = (half[0] for half in halves)
        return nodes, " ".join([rng.choice(forms).format(start[0], second), *third])

    def _phrases(
        self, wording: Wording, count: int, without: Set[str] = frozenset(), *, common: bool = False
    ) -> list[str]:
        """Draw phrases in the order of the text: with rare words rather than common ones, or the reverse."""
        drawn: list[tuple[float, int]] = []
        for place, phrase in enumerate(wording.phrases):
            words = self.word.findall(phrase.lower())
            # two words, or one that is a name or a long word
            is_enough = " " in phrase or len(phrase) >= LONG or self.word is _SHORT_WORD or _NAMING.search(phrase)
            if is_enough and not without & set(words):
                held = [number for word in words if (number := self.passages_with[word])]
                rarity = math.log1p(self.graph.num_nodes / min(held)) if held else 1.0
                weight = 1 / rarity if common else rarity * min(2, len(phrase.split()))
                drawn.append((self.rng.random() * weight, place))
        return [wording.phrases[place] for place in sorted(place for _, place in sorted(drawn)[-count:])]


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
