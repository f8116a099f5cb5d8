"""Questions drafted from a corpus's own passages and edges, and their file: training without a single judgement."""

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import BaseModel, Field

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import REFERENCE
from graphrerank.data.readers.documents import split_passage
from graphrerank.data.readers.records import Id, Written, bad_line, checked, read_jsonl
from graphrerank.data.synthetic_queries.rewording import Rewording
from graphrerank.data.synthetic_queries.wording import QuestionWriter, Wording
from graphrerank.text.languages import CHARACTERS, UNSPACED
from graphrerank.text.stems import spelled_words
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_not_negative, check_share

SINGLE, LONG_QUESTION, PAIR, MANY, REWORDED = "single", "long", "pair", "many", "reworded"
KIND_WEIGHTS = {
    SINGLE: 0.4,
    LONG_QUESTION: 0.2,
    PAIR: 0.25,
    MANY: 0.15,
    REWORDED: 0.4,
}  # weights of the kinds, and a share of each
SHARE_EVEN = 0.45  # of those of two joined passages: phrases of each; the others name one and hint at the other
SHARE_THIRD = 0.15  # of those of two: a neighbour of the second one joins them
SHARE_WITHOUT_SHARED = 0.6  # of those of two: no word that both hold, so that only the edge connects the halves
SHARE_ASKED = 0.7  # where a passage suggests a whole question: that one, else keywords
SHARE_TOPIC = 0.6  # of the even ones: the second half is the name of its passage, and the first one a whole question
SHARE_HUBS = 0.4  # of those of many passages: what is linked with one of them
MAX_REPLIES = 4  # to a passage that ends with a question; they and it are the answer
MIN_MANY, MAX_MANY = 4, 40  # passages of a question that asks for all that mention or link to something
MAX_SHARED_WORDS = 0.4  # of the words of a clause, with the other clause of a long question
MIN_KEYWORDS = 3  # of a question of phrases; with at most as many, another also has the passage's name
MIN_WORDS, MAX_WORDS = 2, 14  # of a question, of each of its passages at most
MAX_PHRASE_CHARACTERS = 5  # of a phrase that many passages mention, without spaces between words
COMMON = 0.2  # a phrase has a word that at most this share of the passages hold
MAX_WORD_FREQUENCY = 0.02  # a question has a word that at most this share of the passages (or two) hold
MIN_NAME_LETTERS = 12  # letters of a word that says enough alone
SAME_START = 6  # letters; a question has no two words that begin with the same
KIND_CHOICES, DRAWS = 2, 6  # choices of a kind for each question, and draws for each choice
MIN_SUGGESTED_SHARE = (
    0.2  # share of the questions that passages of any kind suggest, below which passages of any kind are asked for
)
QUESTION_KINDS = (SINGLE, LONG_QUESTION, PAIR, MANY)
DRAFTED_FILE = "drafted.jsonl"  # a separate file, so that nothing takes drafts for judged questions

_NAMING = re.compile(r"[a-z\d][A-Z]|[A-Z]{2}|\w[._-]\w|\d")
_WORD = re.compile(r"[^\W_]+")
# of scripts without spaces, whose runs are whole clauses: pairs of characters, as they are matched
_SHORT_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W_{UNSPACED}]+")


class Draft(NamedTuple):
    """A drafted question: its text, the numbers of its relevant passages, and its kind, of :data:`QUESTION_KINDS`."""

    text: str
    nodes: list[int]
    kind: str = ""


def draft_questions(
    graph: CorpusGraph, count: int, *, shares: Mapping[str, float] | None = None, seed: int = 0
) -> list[Draft]:
    """Draft at most ``count`` questions whose relevant passages are known, because their words were taken from these.

    docs/your_data.md lists the kinds. No other passage has the words of a ``single`` one, whose neighbours are not
    relevant: a model must not follow edges blindly. Half of the ``pair`` ones name the first passage and take a common
    phrase of the other, which is found along the edge; edges are drawn evenly from their types. Passages that nobody
    asks for (changelogs, licences, lists of names) are left out (:mod:`~graphrerank.data.synthetic_queries.wording`),
    unless nearly all are such, as the tables of a schema are.

    Args:
        graph: Passages and their edges.
        count: Maximum number of questions.
        shares: Weights of kinds, and the share ``reworded``; others are :data:`KIND_WEIGHTS`. A kind of which the
            corpus has too few questions leaves its share to the others.
        seed: One seed gives one result.

    Raises:
        ValueError: If ``count`` or a share is out of range, or a kind is unknown.

    Ours. A model trained on an earlier wording of them, and on judged tables and single-hop questions, but on no
    multi-hop question, gains 13 points of PR@10 on 2WikiMultihopQA (docs/left_out.md).
    """
    check_counts(count=count)
    for kind, share in (shares or {}).items():
        check_choice(KIND_WEIGHTS, shares=kind)
        check_not_negative(**{f"shares[{kind!r}]": share})
    shares = {**KIND_WEIGHTS, **(shares or {})}
    check_share(reworded=shares[REWORDED])
    if not any(shares[kind] for kind in QUESTION_KINDS):
        raise UserError(f"`shares` must have a positive weight of {QUESTION_KINDS}, got {shares}")
    drafts = list(_Drafter(graph, random.Random(seed)).questions(count, shares))
    if len(drafts) < count * MIN_SUGGESTED_SHARE:
        others = list(_Drafter(graph, random.Random(seed), is_strict=False).questions(count, shares))
        return others if len(drafts) < len(others) * MIN_SUGGESTED_SHARE else drafts
    return drafts


class _Drafter:
    """Draws questions from a corpus."""

    def __init__(self, graph: CorpusGraph, rng: random.Random, *, is_strict: bool = True) -> None:
        self.graph, self.rng = graph, rng
        language = graph.passages.language
        self.word = _SHORT_WORD if language == CHARACTERS else _WORD
        self.writer = QuestionWriter(language, graph.texts, is_strict=is_strict)
        self.words_of = [{word.lower() for word in self.word.findall(text)} for text in graph.texts]
        self.passages_with: dict[str, list[int]] = {}
        for node, words in enumerate(self.words_of):
            for word in words:
                self.passages_with.setdefault(word, []).append(node)
        self.reworded = Rewording(language, graph.texts, self.passages_with, self.writer)
        pairs, _, types = graph.typed_edges()
        self.pairs_of_types = [pairs[types == number].tolist() for number in torch.unique(types).tolist()]
        linked = graph.count_neighbours(torch.arange(graph.num_nodes), REFERENCE)
        self.hubs = ((linked >= MIN_MANY - 1) & (linked < MAX_MANY)).nonzero().flatten().tolist()
        self.asking = [node for node, text in enumerate(graph.texts) if text.endswith("?")]
        self.wording = cache(self._wording)

    def questions(self, count: int, shares: Mapping[str, float]) -> Iterator[Draft]:
        draws = {SINGLE: self._single, LONG_QUESTION: self._long, PAIR: self._joined, MANY: self._many}
        seen = set[str | tuple[int, ...]]()
        number = 0
        for _ in range(KIND_CHOICES * count):
            kind = self.rng.choices(QUESTION_KINDS, [shares[kind] for kind in QUESTION_KINDS])[0]
            for _ in range(DRAWS):
                nodes, text = draws[kind]()
                if text is None or not self._is_question(text, nodes, kind):
                    continue
                key = tuple(nodes) if kind == MANY else text
                is_reworded = self.rng.random() < shares[REWORDED]
                asked = self.reworded(text, self.rng) if is_reworded else text
                if not seen & {key, asked}:
                    seen |= {key, text, asked}
                    number += 1
                    yield Draft(asked, nodes, kind)
                    break
            if number == count:
                return

    def _is_question(self, text: str, nodes: Sequence[int], kind: str) -> bool:
        words = self.word.findall(text.lower())
        content = [word for word in words if word not in self.writer.stop_words]
        if kind == MANY:
            return bool(content)
        is_spaced = self.writer.is_strict and self.word is _WORD
        if is_spaced and kind == PAIR and len({word[:SAME_START] for word in content}) < len(content):
            return False
        limit = max(2, MAX_WORD_FREQUENCY * self.graph.num_nodes)
        is_rare = any(0 < len(self.passages_with.get(word, ())) <= limit for word in content)
        most = 3 * MAX_WORDS if kind == LONG_QUESTION else MAX_WORDS * len(nodes)
        return is_rare and MIN_WORDS <= len(words) <= most and (kind == PAIR or self._is_only(text, nodes[0]))

    def _is_only(self, text: str, node: int) -> bool:
        """Return whether no other passage holds those of the words that this one holds, or defines what it defines."""
        if (wording := self.wording(node)) is not None and wording.is_only:
            return True
        held = set(self.word.findall(text.lower())) & self.words_of[node] - self.writer.stop_words
        return bool(held) and self._holders(held) == [node]

    def _holders(self, words: Set[str]) -> list[int]:
        rarest = min(words, key=lambda word: (len(self.passages_with.get(word, ())), word))
        return [node for node in self.passages_with.get(rarest, ()) if words <= self.words_of[node]]

    def _wording(self, node: int) -> Wording | None:
        title, text = split_passage(self.graph.texts[node], len(self.graph.passages.title(node)))
        return self.writer.wording(title, text, self.graph.node_ids[node])

    def _drawn(self) -> tuple[list[int], Wording | None]:
        node = self.rng.randrange(self.graph.num_nodes)
        return [node], self.wording(node)

    def _single(self) -> tuple[list[int], str | None]:
        nodes, wording = self._drawn()
        if wording is None:
            return nodes, None
        if wording.questions and self.rng.random() < SHARE_ASKED:
            text = self.rng.choice(wording.questions)
        elif wording.name and self.rng.random() < SHARE_TOPIC:
            text = wording.name
        else:
            phrases = [wording.name, *self._phrases(wording, 1)] if wording.name else self._phrases(wording, 2)
            text = " ".join(dict.fromkeys(word for phrase in phrases for word in phrase.split()))
            is_prose = self.writer.is_strict and self.word is _WORD
            if not wording.name and is_prose and len(text.split()) < MIN_KEYWORDS:
                return nodes, None
        content = self._content(text)
        is_clear = len(content) > MIN_KEYWORDS and self._is_only(text, nodes[0])
        if wording.name and not is_clear and self._share(wording.name, content) <= MAX_SHARED_WORDS:
            text = self.writer.templates.qualified.format(text, wording.name)
        return nodes, text

    def _long(self) -> tuple[list[int], str | None]:
        """Draw a whole sentence, two questions of a passage, or a question with what it is about."""
        rng, templates = self.rng, self.writer.templates
        nodes, wording = self._drawn()
        if wording is None:
            return nodes, None
        forms = list(wording.long)
        if wording.questions:
            first = rng.choice(wording.questions)
            words = self._content(first)
            new = [other for other in wording.questions if self._share(other, words) <= MAX_SHARED_WORDS]
            forms += [templates.both.format(first, rng.choice(new))] if new else []
            parts = [wording.name, *self._phrases(wording, 2)]
            parts = [part for part in parts if part and self._share(part, words) <= MAX_SHARED_WORDS]
            forms += [rng.choice(templates.situated).format(parts[0], parts[-1], first)] if len(parts) > 1 else []
        return nodes, rng.choice(forms) if forms else None

    def _content(self, text: str) -> set[str]:
        """Return the words that are no stop words, and parts of names, or the characters of scripts without spaces."""
        is_short = self.word is _SHORT_WORD
        return set(text) if is_short else {word.lower() for word in spelled_words(text)} - self.writer.stop_words

    def _share(self, text: str, words: Set[str]) -> float:
        content = self._content(text)
        return len(content & words) / max(1, len(content))

    def _many(self) -> tuple[list[int], str | None]:
        """Draw a named passage with all that references join with it, or all passages that mention a phrase."""
        rng, templates = self.rng, self.writer.templates
        if self.hubs and rng.random() < SHARE_HUBS:
            node = rng.choice(self.hubs)
            wording = self.wording(node)
            linked = self.graph.neighbours(torch.tensor([node]), REFERENCE)[1].tolist()
            name = wording.name if wording is not None else ""
            return sorted({node, *linked}), rng.choice(templates.linked).format(name) if name else None
        nodes, wording = self._drawn()
        if wording is None or not wording.phrases:
            return nodes, None
        phrase = rng.choice(wording.phrases)
        if self._says_enough(phrase) == (self.word is _SHORT_WORD):  # of characters, short ones are names
            return nodes, None
        words = set(self.word.findall(phrase.lower())) - self.writer.stop_words
        spelled = re.compile(re.escape(phrase), re.IGNORECASE)
        nodes = [node for node in self._holders(words) if spelled.search(self.graph.texts[node])] if words else []
        is_listed = MIN_MANY <= len(nodes) <= MAX_MANY
        return nodes, rng.choice(templates.listed).format(phrase) if is_listed else None

    def _joined(self) -> tuple[list[int], str | None]:
        """Draw two or three passages that edges join, and phrases of each, which fill a template."""
        rng, templates = self.rng, self.writer.templates
        if not self.pairs_of_types:
            return [], None
        if len(self.asking) > MAX_WORD_FREQUENCY * self.graph.num_nodes and rng.random() < SHARE_TOPIC:
            return self._replied()
        is_even = rng.random() < SHARE_EVEN
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
            asked = [question for question in first.questions if not without & set(question.lower().split())]
            start = [rng.choice(asked)] if asked and rng.random() < SHARE_TOPIC else self._phrases(first, 1, without)
            can_ask = is_guide and start[:1] != asked[:1]
            forms = [form for form in templates.joined if can_ask or not form.startswith(("how", "comment", "cómo"))]
        if not start or not all(halves):
            return nodes, None
        second, *third = (half[0] for half in halves)
        return nodes, " ".join([rng.choice(forms).format(start[0], second), *third])

    def _replied(self) -> tuple[list[int], str | None]:
        """Draw a passage that ends with a question, which is the answer together with later ones that refer to it."""
        node = self.rng.choice(self.asking)
        wording, linked = self.wording(node), self.graph.neighbours(torch.tensor([node]), REFERENCE)[1].tolist()
        replies = [other for other in linked if other > node]
        if wording is None or not wording.asked or not 0 < len(replies) <= MAX_REPLIES:
            return [node], None
        return [node, *replies], self.rng.choice(wording.asked)

    def _phrases(
        self, wording: Wording, count: int, without: Set[str] = frozenset(), *, common: bool = False
    ) -> list[str]:
        """Draw phrases in the order of the text: with rare words rather than common ones, or the reverse."""
        drawn: list[tuple[float, int]] = []
        for place, phrase in enumerate(wording.phrases):
            words = self.word.findall(phrase.lower())
            if self._says_enough(phrase) and not without & set(words):
                held = [len(self.passages_with[word]) for word in words if word in self.passages_with]
                if held and min(held) > max(2, COMMON * self.graph.num_nodes):
                    continue
                rarity = math.log1p(self.graph.num_nodes / min(held)) if held else 1.0
                weight = 1 / rarity if common else rarity * min(2, len(phrase.split()))
                drawn.append((self.rng.random() * weight, place))
        return [wording.phrases[place] for place in sorted(place for _, place in sorted(drawn)[-count:])]

    def _says_enough(self, phrase: str) -> bool:
        """Return whether a phrase is two words, a name or a long word."""
        if self.word is _SHORT_WORD:
            return len(phrase) >= MAX_PHRASE_CHARACTERS
        return " " in phrase or len(phrase) >= MIN_NAME_LETTERS or bool(_NAMING.search(phrase))


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
            raise bad_line(path, line, needed="`relevant`: ids of the corpus", actual=unknown[0])
        nodes = [node_number[doc_id] for doc_id in dict.fromkeys(question.relevant)]
        if min(nodes) >= 0:
            drafts.append(Draft(question.text, nodes))
    if not drafts:
        raise UserError(f"{path}: needed a question with documents of the corpus that are kept, found none")
    return drafts
