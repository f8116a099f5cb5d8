"""Answers without a language model: the span of the context that a small trained model prefers."""

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations, islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.language_models.reply import ANSWERED, Reply
from graphrerank.metrics.coverage import normalize_answer
from graphrerank.text import normalize_entity, split_sentences, words
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files, load_tensors
from graphrerank_papers.answers.packing import Context

WEIGHTS = Path(__file__).parent / "extractive_reader.safetensors"  # by benchmarks/train_reader.py
NUM_WEIGHTS = 1 << 15
NAME = "extractive_reader"
YES_NO = "yes/no"  # kind of a question
YEAR = re.compile(r"\b(1\d{3}|20\d{2})\b")
_ASKED = re.compile(r"\b(who|whom|whose|when|where|which|what|how many|how|why)\b")
_YES_NO = re.compile(r"^(is|are|was|were|do|does|did|has|have|had|can|could|will)\b", re.IGNORECASE)
_NAME = re.compile(r"\b[A-ZÀ-Þ]\w+")
_CUES = "first earlier earliest older oldest before younger youngest later last latest more recently newer longer"
_TURNS = "born died die director released came established founded lived performer composer"
TITLE_CHARS = 100  # a longer first sentence is no title
NEAR_TITLE = 4  # shortest title, in characters, that is looked for in other texts
_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_UPPER = r"[A-ZÀ-ÞĀĂĄĆČĎĐĒĖĘĚĞĢĪĮİĶĹĽŁŃŅŇŌŐŘŚŞŠŢŤŪŮŰŲŹŻŽ]"
_WORD = rf"(?:{_UPPER}[\w'\u2019&-]*|(?:{_UPPER}\.)+)"
_LINK = r"(?:of the|of|the|de la|de|del|da|di|du|van der|van|von|der|la|le|al|bin|ibn|y|for|'s|&)"
_PATTERNS = {
    "date": rf"\d{{1,2}}(?:st|nd|rd|th)? {_MONTH},? \d{{3,4}}|{_MONTH} \d{{1,2}}, \d{{4}}|{_MONTH} \d{{4}}",
    "place": rf"{_WORD}(?: {_WORD})*(?:, {_WORD}(?: {_WORD})*)+",
    "name": rf"{_WORD}(?: (?:{_LINK} )?{_WORD})*",
    "joined": rf"{_WORD}(?: (?:{_LINK} |and )?{_WORD})* and {_WORD}(?: (?:{_LINK} )?{_WORD})*",
    "number": r"\d[\d,.]*\d|\d",
}
_FORMS = {kind: re.compile(pattern) for kind, pattern in _PATTERNS.items()}
MOST_SPANS = 24  # of a form, in a sentence
MOST_SENTENCES = 12  # of a passage
REACH = 45  # characters on either side that are looked at
NEAR = 6  # words
DASH = "\u2013"


class AnswerSpan(NamedTuple):
    """A span, and the names of its features."""

    text: str
    features: tuple[str, ...]


class ExtractiveReader:
    """Chooses a span of the packed passages, or yes or no.

    Each span has named features: its form, its position, the words around it and those of the question. A name is
    hashed to one of ``NUM_WEIGHTS`` weights. A span's probability is the softmax of its features' sum over all spans of
    a context; those of one text add up, and the likeliest text is the answer. It abstains only if a context has no
    span: a floor and a smoke test. The file ``weights`` holds ``weights``, ``[NUM_WEIGHTS]``; None for what ships.
    """

    name = NAME

    def __init__(self, weights: str | Path | None = None) -> None:
        self.path = WEIGHTS if weights is None else Path(weights)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        return hash_files([self.path])

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer ``Q`` questions from a context each; equal ones are read once."""
        keys = [(question, context.passages) for question, context in zip(questions, contexts, strict=True)]
        texts = {key: best_text(answer_spans(*key), self._weights) for key in dict.fromkeys(keys)}
        return [Reply(texts[key], ANSWERED, NAME, 0, 0) for key in keys]

    @cached_property
    def _weights(self) -> Tensor:
        weights = load_tensors(self.path, ("weights",))["weights"].float()
        if weights.shape != (NUM_WEIGHTS,):
            raise UserError(f"{self.path}: needed `weights` of {NUM_WEIGHTS} numbers, got {list(weights.shape)}")
        return weights


def feature_rows(spans: Sequence[AnswerSpan]) -> tuple[Tensor, Tensor]:
    """Hash the features of ``n`` spans: ``[F]`` int64 weights, and ``[n]`` int64 where each span's begin."""
    hashed = [[zlib.crc32(name.encode("utf-8", "surrogatepass")) % NUM_WEIGHTS for name in s.features] for s in spans]
    starts = torch.tensor([0, *(len(row) for row in hashed)], dtype=torch.int64).cumsum(0)[:-1]
    return torch.tensor([index for row in hashed for index in row], dtype=torch.int64), starts


def best_text(spans: Sequence[AnswerSpan], weights: Tensor) -> str:
    """Return the likeliest text, in the form in which it is likeliest; empty without a span."""
    if not spans:
        return ""
    features, starts = feature_rows(spans)
    scores = torch.nn.functional.embedding_bag(features, weights.unsqueeze(1), starts, mode="sum").flatten()
    shares: dict[str, float] = {}
    best: dict[str, tuple[float, str]] = {}
    for span, share in zip(spans, torch.softmax(scores, 0).tolist(), strict=True):
        key = normalize_answer(span.text)
        shares[key] = shares.get(key, 0.0) + share
        best[key] = max(best.get(key, (-1.0, "")), (share, span.text))
    return best[max(shares, key=lambda key: shares[key])][1]


class Question:
    """A question's kind and the stems of its words."""

    def __init__(self, text: str) -> None:
        self.lower = text.lower()
        self.plain = normalize_entity(text)
        asked = _ASKED.search(self.lower)
        following = self.lower[asked.end() :].split() if asked else []
        is_yes_no = _YES_NO.match(text) is not None and " or " not in text
        self.kind = YES_NO if is_yes_no else asked[0] if asked else "none"
        self.wanted = f"{self.kind} {following[0].strip('?,.') if following else ''}"
        self.stems = frozenset(words(text))
        names = frozenset(stem for name in _NAME.findall(text[1:]) for stem in words(name))
        self.relations = tuple(dict.fromkeys(stem for stem in words(text) if stem not in names))
        lower = self.lower.replace(",", " ").replace("?", " ").split()
        self.cues = sorted({*_CUES.split()} & {*lower}) or ["none"]
        self.turn = "+".join(sorted({*_TURNS.split()} & {*lower}))


class ReaderPassage:
    """A passage of a context, split into its title, which is its first sentence if it is short, and the rest."""

    def __init__(self, rank: int, text: str) -> None:
        self.rank = rank  # in the order of reading
        title, stop, rest = text.partition(". ")
        self.title, self.text = (title, rest) if stop and len(title) <= TITLE_CHARS else ("", text)
        self.name = re.sub(r"\s*\([^)]*\)$", "", self.title)  # without its parenthesis
        self.plain = normalize_entity(self.text)
        self.years = tuple(int(year) for year in YEAR.findall(self.text))
        # `asked` if the question names the title, `linked` if the text of such a passage does, else `other`
        self.role = "other"

    def is_named_in(self, plain: str) -> bool:
        """Return whether a normalised text names the title, as whole words."""
        name = normalize_entity(self.name)
        return len(name) >= NEAR_TITLE and f" {name} " in f" {plain} "


def read_passages(question: Question, texts: Sequence[str]) -> list[ReaderPassage]:
    """Split passages, and find those that the question names and those that these name."""
    passages = [ReaderPassage(rank, text) for rank, text in enumerate(texts)]
    asked = [passage for passage in passages if passage.is_named_in(question.plain)]
    from_asked = " ".join(passage.plain for passage in asked)
    for passage in passages:
        passage.role = "asked" if passage in asked else "linked" if passage.is_named_in(from_asked) else "other"
    return passages


def linked_from(passage: ReaderPassage, passages: Sequence[ReaderPassage]) -> ReaderPassage | None:
    """Return the first passage whose title another one names, or None."""
    return next((other for other in passages if other.rank != passage.rank and other.is_named_in(passage.plain)), None)


def answer_spans(question_text: str, texts: Sequence[str]) -> list[AnswerSpan]:
    """List the spans of packed passages that may answer a question; the same text may come several times."""
    question = Question(question_text)
    passages = read_passages(question, texts)
    if question.kind == YES_NO:
        return list(_yes_no(question, passages))
    spans = [span for passage in passages for span in _in_passage(question, passage)]
    return [*spans, *_options(question, passages)]


def _in_passage(question: Question, passage: ReaderPassage) -> Iterator[AnswerSpan]:
    if passage.title:
        yield AnswerSpan(passage.name, _features(question, passage, "title", passage.name, ("", ""), "0.0", 0))
    for number, (start, stop) in enumerate(split_sentences(passage.text)[:MOST_SENTENCES]):
        sentence = passage.text[start:stop]
        shared = len(question.stems & set(words(sentence)))
        for kind, form in _FORMS.items():
            for place, found in enumerate(islice(form.finditer(sentence), MOST_SPANS)):
                sides = sentence[max(0, found.start() - REACH) : found.start()], sentence[found.end() :][:REACH]
                where = f"{min(number, 3)}.{min(place, 4)}"
                yield AnswerSpan(found[0], _features(question, passage, kind, found[0], sides, where, shared))


def _features(
    question: Question, passage: ReaderPassage, kind: str, text: str, sides: tuple[str, str], where: str, shared: int
) -> tuple[str, ...]:
    """Name the features of a span; the reader has a weight for each name."""
    wanted, role, (left, right) = question.wanted, passage.role, sides
    own = set(words(text))
    overlap = "none" if not own & question.stems else "all" if own <= question.stems else "some"
    before, after = left.lower().split()[-NEAR:], right.lower().split()[:NEAR]
    near = set(words(" ".join([*before, *after])))
    last, nearest = before[-1] if before else "^", " ".join(before[-2:])
    inside = left.count("(") > left.count(")")
    names = [
        f"kind {kind}",
        f"kind {kind} {wanted}",
        f"kind {kind} {question.kind} {role}",
        f"rank {min(passage.rank, 9)}",
        f"role {role} {overlap}",
        f"overlap {overlap} {kind} {question.kind}",
        f"where {where} {kind}",
        f"where {where} {role} {question.kind}",
        f"shared {min(shared, 5)} {role}",
        f"length {min(len(text.split()), 6)} {kind} {question.kind}",
        f"left {last}",
        f"left {nearest}",
        f"left {last} {question.kind}",
        f"right {after[0] if after else '$'} {kind}",
        f"inside {inside} {question.kind} {kind}",
    ]
    for relation in question.relations[:5]:
        names += [
            f"asks {relation} {kind} {role}",
            f"asks {relation} {last}",
            f"asks {relation} {nearest}",
            f"asks {relation} near {relation in near}",
            f"asks {relation} where {where} {role}",
            f"asks {relation} inside {inside} {'-' in left or DASH in left} {kind}",
            *(f"asks {relation} by {stem}" for stem in near),
        ]
    return tuple(names)


def _options(question: Question, passages: Sequence[ReaderPassage]) -> Iterator[AnswerSpan]:
    """Titles that the question offers, by the years in their passages and in those that they name."""
    if " or " not in question.lower:
        return
    offered = [passage for passage in passages if passage.role == "asked"]
    rest = [passage for passage in passages if passage.role != "asked"]
    for passage in offered:
        names = ["option", f"option {question.wanted}"]
        other = next((each for each in offered if each.title != passage.title), None)
        linked = linked_from(passage, rest), None if other is None else linked_from(other, rest)
        for label, (first, second) in (("own", (passage, other)), ("linked", linked)):
            for at, step in ((0, "first"), (1, "second"), (-1, "last")):
                order = _order(first, second, at)
                names += [f"option {label} {step} {order} {cue} {question.turn}" for cue in question.cues]
                names += [f"option {label} {step} {order} {cue}" for cue in question.cues]
        yield AnswerSpan(passage.name, tuple(names))


def _yes_no(question: Question, passages: Sequence[ReaderPassage]) -> Iterator[AnswerSpan]:
    """Both answers, by the words that the passages with titles in the question, and those that they name, share."""
    read = [passage for passage in passages if passage.role == "asked"]
    read += [each for passage in read if (each := linked_from(passage, passages)) is not None]
    stems = [set(words(passage.text[:300])) - question.stems for passage in read]
    shared: set[str] = set().union(*(one & other for one, other in combinations(stems, 2)))
    names = [f"shared {min(len(shared), 6)}", f"read {len(read)}", *(f"word {stem}" for stem in question.relations)]
    names += [f"both {stem}" for stem in sorted(shared)]
    for answer in ("yes", "no"):
        yield AnswerSpan(answer, tuple(f"{answer} {name}" for name in names))


def _order(first: ReaderPassage | None, second: ReaderPassage | None, at: int) -> str:
    """Compare the years of two passages at a position."""
    one, other = (() if passage is None else passage.years[at : at + 1 or None] for passage in (first, second))
    if not one or not other:
        return "unknown"
    return "less" if one < other else "more" if one > other else "same"
