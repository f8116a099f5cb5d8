"""Questions drafted from a corpus's passages and edges, and their file, for training without judgements."""

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
}  # Weights of the kinds, and the share of reworded questions.
# Share of the pair questions that combine phrases of both passages. The others name one and hint at the other.
SHARE_EVEN = 0.45
SHARE_THIRD = 0.15  # Share of the pair questions that include a neighbour of the second passage.
# Share of the pair questions that contain no word common to both passages, so that only the edge connects the halves.
SHARE_WITHOUT_SHARED = 0.6
SHARE_ASKED = 0.7  # Probability of using a whole question if the passage suggests one. Otherwise, keywords are used.
# In questions that combine both passages, probability of naming the second, and of asking a whole question about the
# first.
SHARE_TOPIC = 0.6
SHARE_HUBS = 0.4  # Share of the many questions that ask for all passages linked with one passage.
MAX_REPLIES = 4  # Maximum number of replies to a passage that ends with a question.
MIN_MANY, MAX_MANY = 4, 40  # Minimum and maximum number of relevant passages of a many question.
MAX_SHARED_WORDS = 0.4  # Maximum share of words that two clauses of a long question have in common.
# Minimum number of keywords. Questions with at most this many content words also contain the name of the passage.
MIN_KEYWORDS = 3
MIN_WORDS, MAX_WORDS = 2, 14  # Minimum number of words per question, and maximum number per passage.
# In scripts without spaces, phrases with at least this many characters identify a passage, and shorter ones are names.
MAX_PHRASE_CHARACTERS = 5
COMMON = 0.2  # A phrase contains a word that occurs in at most this share of the passages.
MAX_WORD_FREQUENCY = 0.02  # A question contains a word that occurs in at most this share of the passages (or in two).
MIN_NAME_LETTERS = 12  # A single word of at least this many letters is specific enough as a phrase.
SAME_START = 6  # No two words of a question have the same first letters, up to this number.
KIND_CHOICES, DRAWS = 2, 6  # Number of draws of a kind per question, and number of attempts per draw.
# If the selected passages suggest a smaller share of the requested number of questions, all passages are used.
MIN_SUGGESTED_SHARE = 0.2
QUESTION_KINDS = (SINGLE, LONG_QUESTION, PAIR, MANY)
DRAFTED_FILE = "drafted.jsonl"  # A separate file, so that drafts are not mistaken for judged questions.

_NAMING = re.compile(r"[a-z\d][A-Z]|[A-Z]{2}|\w[._-]\w|\d")
_WORD = re.compile(r"[^\W_]+")
# In scripts without spaces, where a run of letters is a whole clause, pairs of characters are matched.
_SHORT_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\W_{UNSPACED}]+")


class Draft(NamedTuple):
    """Drafted question.

    Attributes:
        text: Text of the question.
        nodes: Numbers of the relevant passages.
        kind: One of :data:`QUESTION_KINDS`. Empty if unknown.
    """

    text: str
    nodes: list[int]
    kind: str = ""


def draft_questions(
    graph: CorpusGraph, count: int, *, shares: Mapping[str, float] | None = None, seed: int = 0
) -> list[Draft]:
    """Draft questions whose relevant passages are known, because their words are taken from these passages.

    docs/your_data.md lists the kinds of questions. No other passage contains the words of a ``single`` question, and
    its neighbours are not relevant, so that a model does not learn to follow edges blindly. Half of the ``pair``
    questions name the first passage and use a common phrase of the second, which can be found only along the edge.
    Edges are drawn evenly from their types. Passages that nobody asks about (changelogs, licences, lists of names) are
    skipped (:mod:`~graphrerank.data.synthetic_queries.wording`), unless nearly all passages are of this kind, as in a
    database schema.

    Source: this project. A model trained on an earlier version of these questions, and on judged tables and single-hop
    questions, but on no multi-hop question, gains 13 points of PR@10 on 2WikiMultihopQA (docs/left_out.md).

    Args:
        graph: Passages and their edges.
        count: Maximum number of questions.
        shares: Weights of the kinds, and the share of ``reworded`` questions. Missing entries are those of
            :data:`KIND_WEIGHTS`. If the corpus has too few questions of a kind, other kinds replace them.
        seed: Random seed.

    Returns:
        Drafted questions.

    Raises:
        ValueError: If ``count`` or a share is out of range, or if a kind is unknown.
    """
    check_counts(count=count)
    for kind, share in (shares or {}).items():
        check_choice(KIND_WEIGHTS, shares=kind)
        check_not_negative(**{f"shares[{kind!r}]": share})
    shares = {**KIND_WEIGHTS, **(shares or {})}
    check_share(reworded=shares[REWORDED])
    if not any(shares[kind] for kind in QUESTION_KINDS):
        raise UserError(f"`shares` must contain a positive weight for one of {QUESTION_KINDS}, got {shares}")
    drafts = list(_Drafter(graph, random.Random(seed)).questions(count, shares))
    if len(drafts) < count * MIN_SUGGESTED_SHARE:
        others = list(_Drafter(graph, random.Random(seed), is_strict=False).questions(count, shares))
        return others if len(drafts) < len(others) * MIN_SUGGESTED_SHARE else drafts
    return drafts


class _Drafter:
    """Random generator of questions about a corpus."""

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
                question = self.reworded(text, self.rng) if is_reworded else text
                if not seen & {key, question}:
                    seen |= {key, text, question}
                    number += 1
                    yield Draft(question, nodes, kind)
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
        """Return whether a question identifies the passage by words or names that no other passage has."""
        if (wording := self.wording(node)) is not None and wording.is_only:
            return True
        words = set(self.word.findall(text.lower())) & self.words_of[node] - self.writer.stop_words
        return bool(words) and self._holders(words) == [node]

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
        """Draw a whole sentence, two questions about a passage, or a question with its context."""
        rng, templates = self.rng, self.writer.templates
        nodes, wording = self._drawn()
        if wording is None:
            return nodes, None
        forms = list(wording.long)
        if wording.questions:
            first = rng.choice(wording.questions)
            words = self._content(first)
            new = [other for other in wording.questions if self._share(other, words) <= MAX_SHARED_WORDS]
            if new:
                forms.append(templates.both.format(first, rng.choice(new)))
            phrases = [wording.name, *self._phrases(wording, 2)]
            phrases = [phrase for phrase in phrases if phrase and self._share(phrase, words) <= MAX_SHARED_WORDS]
            if len(phrases) > 1:
                forms.append(rng.choice(templates.situated).format(phrases[0], phrases[-1], first))
        return nodes, rng.choice(forms) if forms else None

    def _content(self, text: str) -> set[str]:
        """Return the content words with the parts of compound names, or the characters in scripts without spaces."""
        is_short = self.word is _SHORT_WORD
        return set(text) if is_short else {word.lower() for word in spelled_words(text)} - self.writer.stop_words

    def _share(self, text: str, words: Set[str]) -> float:
        content = self._content(text)
        return len(content & words) / max(1, len(content))

    def _many(self) -> tuple[list[int], str | None]:
        """Draw a named passage with all passages that it references, or all passages that mention a phrase."""
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
        says_enough = self._says_enough(phrase)
        if self.word is _SHORT_WORD:
            says_enough = not says_enough  # in scripts without spaces, short phrases are names
        if not says_enough:
            return nodes, None
        words = set(self.word.findall(phrase.lower())) - self.writer.stop_words
        spelled = re.compile(re.escape(phrase), re.IGNORECASE)
        nodes = [node for node in self._holders(words) if spelled.search(self.graph.texts[node])] if words else []
        is_listed = MIN_MANY <= len(nodes) <= MAX_MANY
        return nodes, rng.choice(templates.listed).format(phrase) if is_listed else None

    def _joined(self) -> tuple[list[int], str | None]:
        """Draw two or three passages joined by edges, and combine phrases of each in a template."""
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
            neighbours = self.graph.neighbours(torch.tensor(nodes[1:]))[1].tolist()
            further = [node for node in neighbours if node not in nodes]
            if further:
                nodes.append(rng.choice(further))
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
            questions = [question for question in first.questions if not without & set(question.lower().split())]
            asks = bool(questions) and rng.random() < SHARE_TOPIC
            start = [rng.choice(questions)] if asks else self._phrases(first, 1, without)
            can_ask = is_guide and start[:1] != questions[:1]
            forms = [form for form in templates.joined if can_ask or not form.startswith(("how", "comment", "cómo"))]
        if not start or not all(halves):
            return nodes, None
        second, *third = (half[0] for half in halves)
        return nodes, " ".join([rng.choice(forms).format(start[0], second), *third])

    def _replied(self) -> tuple[list[int], str | None]:
        """Draw a passage that ends with a question. The passage and later passages that refer to it are relevant."""
        node = self.rng.choice(self.asking)
        wording = self.wording(node)
        linked = self.graph.neighbours(torch.tensor([node]), REFERENCE)[1].tolist()
        replies = [other for other in linked if other > node]
        if wording is None or not wording.asked or not 0 < len(replies) <= MAX_REPLIES:
            return [node], None
        return [node, *replies], self.rng.choice(wording.asked)

    def _phrases(
        self, wording: Wording, count: int, without: Set[str] = frozenset(), *, common: bool = False
    ) -> list[str]:
        """Draw phrases in the order of the text, preferring rare words or, if ``common``, frequent ones."""
        drawn: list[tuple[float, int]] = []
        for index, phrase in enumerate(wording.phrases):
            words = self.word.findall(phrase.lower())
            if self._says_enough(phrase) and not without & set(words):
                counts = [len(self.passages_with[word]) for word in words if word in self.passages_with]
                if counts and min(counts) > max(2, COMMON * self.graph.num_nodes):
                    continue
                rarity = math.log1p(self.graph.num_nodes / min(counts)) if counts else 1.0
                weight = 1 / rarity if common else rarity * min(2, len(phrase.split()))
                drawn.append((self.rng.random() * weight, index))
        return [wording.phrases[index] for index in sorted(index for _, index in sorted(drawn)[-count:])]

    def _says_enough(self, phrase: str) -> bool:
        """Return whether a phrase consists of at least two words, or is a name or a long word."""
        if self.word is _SHORT_WORD:
            return len(phrase) >= MAX_PHRASE_CHARACTERS
        return " " in phrase or len(phrase) >= MIN_NAME_LETTERS or bool(_NAMING.search(phrase))


class _Question(BaseModel):
    text: Written
    relevant: list[Id] = Field(min_length=1)


def read_drafted(path: Path, node_number: Mapping[str, int]) -> list[Draft]:
    """Read a file of drafted questions.

    Each line is ``{"text": "...", "relevant": ["d1", ...]}``. Other keys are ignored. Questions about skipped documents
    are skipped, too.

    Args:
        path: JSON Lines file of drafted questions.
        node_number: Passage number of each document id. Skipped documents have negative numbers.

    Returns:
        Drafted questions.

    Raises:
        ValueError: If a line is malformed, if an id is unknown, or if no question remains. The message names file and
            line.
    """
    drafts = []
    for line, record in read_jsonl(path):
        question = checked(path, line, record, _Question)
        if unknown := [doc_id for doc_id in question.relevant if doc_id not in node_number]:
            raise bad_line(path, line, needed="ids of the corpus as `relevant`", actual=unknown[0])
        nodes = [node_number[doc_id] for doc_id in dict.fromkeys(question.relevant)]
        if min(nodes) >= 0:
            drafts.append(Draft(question.text, nodes))
    if not drafts:
        raise UserError(f"{path}: expected a question about documents of the corpus, got none")
    return drafts
