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
SHARE_CLAUSE = 0.3  # of those of two: the first half is a whole question

SHARE_TOPIC = 0.5  # of the even ones: the second half is the name of its passage

MIN_WORDS = 2  # of a question; one with fewer is left out
MAX_WORDS = 14
FREQUENT = 0.02  # a question has a word that at most this share of the passages (or two) hold
LONG = 12  # letters
SAME_START = 6  # letters; a question has no two words that begin with the same
TRIES = 8  # draws for each question

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
    (:mod:`~graphrerank.data.drafted_wording`), unless all are such.

    Ours. A model trained on an earlier wording of them, and on judged tables and single-hop questions, but on no
    multi-hop question, gains 13 points of PR@10 on 2WikiMultihopQA (docs/left_out.md).
    """
    check_counts(count=count)
    drafts = list(_Drafter(graph, random.Random(seed)).questions(count))
    return drafts or list(_Drafter(graph, random.Random(seed), is_strict=False).questions(count))


class _Drafter:
    """Draws questions from a corpus."""

    def __init__(self, graph: CorpusGraph, rng: random.Random, *, is_strict: bool = True) -> None:
        self.graph, self.rng = graph, rng
        language = graph.passages.language
        self.word = _SHORT_WORD if language == CHARACTERS else _WORD
        self.writer = Writer(language, graph.texts, is_strict=is_strict)
        self.templates = self.writer.templates
        self.words_of = [{word.lower() for word in self.word.findall(text)} for text in graph.texts]
        self.passages_with = Counter(word for words in self.words_of for word in words)
        pairs, _, types = graph.typed_edges()
        self.pairs_of_types = [pairs[types == number].tolist() for number in torch.unique(types).tolist()]
        self.wordings: dict[int, Wording | None] = {}

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
        words = self.word.findall(text)
        limit = max(2, FREQUENT * self.graph.num_nodes)
        held = [self.passages_with[word.lower()] for word in words if word.lower() not in self.writer.stop_words]
        stems = Counter(word.lower()[:SAME_START] for word in words if word.lower() not in self.writer.stop_words)
        if self.writer.is_strict and self.word is _WORD and max(stems.values(), default=0) > 1:
            return False
        return MIN_WORDS <= len(words) <= MAX_WORDS * len(nodes) and any(0 < number <= limit for number in held)

    def _wording(self, node: int) -> Wording | None:
        if node not in self.wordings:
            title, text = split_passage(self.graph.texts[node], len(self.graph.passages.title(node)))
            self.wordings[node] = self.writer.wording(title, text, self.graph.node_ids[node])
        return self.wordings[node]

    def _single(self, node: int) -> str | None:
        wording = self._wording(node)
        if wording is None:
            return None
        if wording.questions and self.rng.random() < SHARE_ASKED:
            return self.rng.choice(wording.questions)
        phrases = self._phrases(wording, 1 if wording.name else 2)
        return _without_repeats([wording.name, *phrases] if wording.name else phrases)

    def _joined(self, *, is_even: bool) -> tuple[list[int], str | None]:
        """Draw two or three passages that edges join, and phrases of each."""
        rng = self.rng
        nodes = list(rng.choice(rng.choice(self.pairs_of_types)))
        rng.shuffle(nodes)
        without = set[str]()
        if rng.random() < SHARE_WITHOUT_SHARED:
            without = set.intersection(*(self.words_of[node] for node in nodes))
        if rng.random() < SHARE_THIRD:
            further = [node for node in self.graph.neighbours(torch.tensor(nodes[1:]))[1].tolist() if node not in nodes]
            nodes += [rng.choice(further)] if further else []
        wordings = [wording for node in nodes if (wording := self._wording(node)) is not None]
        if len(wordings) < len(nodes):
            return nodes, None
        first, *others = wordings
        halves = [self._phrases(other, 1, without, common=not is_even) for other in others]
        if not all(halves):
            return nodes, None
        rest = [half[0] for half in halves]
        topic = others[0].name
        if is_even and topic and rng.random() < SHARE_TOPIC and not without & set(topic.lower().split()):
            rest[0] = topic
        if not is_even and first.name:
            return nodes, self._filled(self.templates.hinted, [first.name, *rest])
        asked = [
            question
            for question in first.questions
            if " I " in question
            and len(question.split()) <= MAX_WORDS / 2
            and not without & set(question.lower().split())
        ]
        if asked and rng.random() < SHARE_CLAUSE:
            return nodes, self._filled(self.templates.joined[:2], [rng.choice(asked), *rest])
        start = self._phrases(first, 1, without)
        is_guide = any(" I " in question for wording in wordings for question in wording.questions)
        templates = [template for template in self.templates.joined if is_guide or not template.startswith("how")]
        return nodes, self._filled(templates, [*start, *rest]) if start else None

    def _filled(self, templates: Sequence[str], phrases: Sequence[str]) -> str:
        """Fill a template of two phrases; a third one follows."""
        return " ".join([self.rng.choice(templates).format(*phrases[:2]), *phrases[2:]])

    def _says_enough(self, phrase: str) -> bool:
        """Return whether a phrase is of two words, or of one that is a name or a long word."""
        return " " in phrase or len(phrase) >= LONG or self.word is _SHORT_WORD or _NAMING.search(phrase) is not None

    def _phrases(
        self, wording: Wording, count: int, without: Set[str] = frozenset(), *, common: bool = False
    ) -> list[str]:
        """Draw phrases in the order of the text: with rare words rather than common ones, or the reverse."""
        choice = [
            phrase
            for phrase in wording.phrases
            if self._says_enough(phrase) and not without & set(self.word.findall(phrase.lower()))
        ]
        keys = []
        for phrase in choice:
            held = [self.passages_with[word] for word in self.word.findall(phrase.lower())]
            rarity = max((math.log1p(self.graph.num_nodes / number) for number in held if number), default=1.0)
            length = min(2, len(phrase.split()))
            keys.append(self.rng.random() * (1 / rarity if common else rarity * length))
        kept = sorted(range(len(choice)), key=keys.__getitem__, reverse=True)[:count]
        return [choice[place] for place in sorted(kept)]


def _without_repeats(phrases: Sequence[str]) -> str:
    """Join phrases, each word once."""
    return " ".join(dict.fromkeys(word for phrase in phrases for word in phrase.split()))


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
