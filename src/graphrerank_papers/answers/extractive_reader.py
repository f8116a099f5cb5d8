"""Answer questions without a language model, by choosing a span of the context with a small trained model."""

import re
import zlib
from collections.abc import Iterator, Sequence, Set
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
from graphrerank.utils.files import hash_files
from graphrerank.utils.tensor_files import load_tensors
from graphrerank_papers.answers.packing import Context

READER_WEIGHTS = Path(__file__).parent / "extractive_reader.safetensors"  # trained by benchmarks/train_reader.py
NUM_WEIGHTS = 1 << 15
READER_NAME = "extractive_reader"
#: Kind of a question that expects "yes" or "no".
YES_NO = "yes/no"
YEAR = re.compile(r"\b(1\d{3}|20\d{2})\b")
_ASKED = re.compile(r"\b(who|whom|whose|when|where|which|what|how many|how|why)\b")
_YES_NO = re.compile(r"^(is|are|was|were|do|does|did|has|have|had|can|could|will)\b", re.IGNORECASE)
_NAME = re.compile(r"\b[A-ZÀ-Þ]\w+")
_CUES = "first earlier earliest older oldest before younger youngest later last latest more recently newer longer"
_TURNS = "born died die director released came established founded lived performer composer"
#: Maximum number of characters of a title. A longer first sentence is part of the text.
TITLE_CHARS = 100
#: Minimum number of characters of a title that is searched in other texts. Shorter titles occur there by chance.
NEAR_TITLE = 4
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
#: Maximum number of spans of one form in a sentence.
MAX_SPANS = 24
#: Maximum number of sentences per passage. Later sentences are ignored.
MAX_SENTENCES = 12
#: Number of characters on either side of a span from which its features are computed.
REACH = 45
#: Number of words on either side of a span that are nearby words.
NEAR_WORDS = 6
DASH = "\u2013"


class AnswerSpan(NamedTuple):
    """Candidate answer.

    Attributes:
        text: Text of the span.
        features: Names of the features of the span.
    """

    text: str
    features: tuple[str, ...]


class ExtractiveReader:
    """Answer with a span of the packed passages, or with yes or no.

    Each span has named features: its form, its position, the words around it, and the words of the question. A feature
    name is hashed to one of ``NUM_WEIGHTS`` weights, and the logit of a span is the sum of its weights. The softmax
    over all spans of a context gives probabilities. Spans with the same normalised text share an answer, whose
    probability is their sum, and the most probable answer is returned. The reader abstains only if the context has no
    span. It is a lower bound for language models, and a smoke test of the whole path.
    """

    name = READER_NAME

    def __init__(self, weights: str | Path | None = None) -> None:
        """Set the file of the weights, which is loaded at the first use.

        Args:
            weights: File with the tensor ``weights`` ``[NUM_WEIGHTS]``. If None, the shipped weights are used.
        """
        self.path = READER_WEIGHTS if weights is None else Path(weights)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        return hash_files([self.path])

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer each question from its context. Duplicate pairs of question and context are answered once.

        Args:
            questions: ``Q`` questions.
            contexts: Context of each question.

        Returns:
            Reply to each question. The text is empty if the reader abstains.

        Raises:
            UserError: If the file of the weights is invalid.

        Example:
            >>> context = Context(("Metz. Metz is a city in France. It was founded in 1250.",), num_tokens=12)
            >>> ExtractiveReader().write(["When was Metz founded?"], [context])[0].text
            '1250'
        """
        keys = [(question, context.passages) for question, context in zip(questions, contexts, strict=True)]
        texts = {key: best_text(answer_spans(*key), self._weights) for key in dict.fromkeys(keys)}
        return [Reply(texts[key], ANSWERED, READER_NAME, 0, 0) for key in keys]

    @cached_property
    def _weights(self) -> Tensor:
        weights = load_tensors(self.path, ("weights",))["weights"].float()
        if weights.shape != (NUM_WEIGHTS,):
            raise UserError(f"{self.path}: `weights` must have shape [{NUM_WEIGHTS}], got {list(weights.shape)}")
        return weights


def feature_rows(spans: Sequence[AnswerSpan]) -> tuple[Tensor, Tensor]:
    """Hash the features of spans to indices of weights, in the form that ``embedding_bag`` takes.

    Args:
        spans: ``n`` spans.

    Returns:
        Indices of the weights of all features ``[F]`` int64, and the offset of each span's first feature ``[n]`` int64.
    """
    hashed = [[zlib.crc32(name.encode("utf-8", "surrogatepass")) % NUM_WEIGHTS for name in s.features] for s in spans]
    starts = torch.tensor([0, *(len(row) for row in hashed)], dtype=torch.int64).cumsum(0)[:-1]
    return torch.tensor([index for row in hashed for index in row], dtype=torch.int64), starts


def best_text(spans: Sequence[AnswerSpan], weights: Tensor) -> str:
    """Return the most probable answer, spelled as in its most probable span.

    Args:
        spans: Candidate answers.
        weights: Weights of the features ``[NUM_WEIGHTS]``.

    Returns:
        Text of the answer. Empty if there are no spans.
    """
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
    """Question with its kind and the stems of its words.

    Attributes:
        lower: Text in lower case.
        plain: Normalised text.
        kind: Question word, ``yes/no``, or ``none``.
        wanted: Kind and the word after the question word.
        stems: Stems of all words.
        relations: Distinct stems of the words that belong to no name, in order.
        cues: Words of comparison in the question, such as "earlier". ``["none"]`` if there are none.
        turn: Words of biography in the question, such as "born", joined by "+".
    """

    def __init__(self, text: str) -> None:
        """Analyse a question.

        Args:
            text: Text of the question.
        """
        self.lower = text.lower()
        self.plain = normalize_entity(text)
        asked = _ASKED.search(self.lower)
        following = self.lower[asked.end() :].split() if asked else []
        is_yes_no = _YES_NO.match(text) is not None and " or " not in text
        self.kind = "none" if asked is None else asked[0]
        if is_yes_no:
            self.kind = YES_NO
        self.wanted = f"{self.kind} {following[0].strip('?,.') if following else ''}"
        self.stems = frozenset(words(text))
        names = frozenset(stem for name in _NAME.findall(text[1:]) for stem in words(name))
        self.relations = tuple(dict.fromkeys(stem for stem in words(text) if stem not in names))
        lower = self.lower.replace(",", " ").replace("?", " ").split()
        self.cues = sorted({*_CUES.split()} & {*lower}) or ["none"]
        self.turn = "+".join(sorted({*_TURNS.split()} & {*lower}))


class ReaderPassage:
    """Passage of a context, split into its title and the rest of its text.

    The first sentence is the title if it is short.

    Attributes:
        rank: Position of the passage in the context, from 0.
        title: Title. Empty if there is none.
        text: Text without the title.
        name: Title without a final parenthesis.
        plain: Normalised text.
        years: Years in the text, in order.
        role: ``asked`` if the question names the title, ``linked`` if the text of an ``asked`` passage does, and
            ``other`` otherwise.
    """

    def __init__(self, rank: int, text: str) -> None:
        """Split a passage.

        Args:
            rank: Position of the passage in the context, from 0.
            text: Text of the passage.
        """
        self.rank = rank
        title, stop, rest = text.partition(". ")
        self.title, self.text = (title, rest) if stop and len(title) <= TITLE_CHARS else ("", text)
        self.name = re.sub(r"\s*\([^)]*\)$", "", self.title)
        self.plain = normalize_entity(self.text)
        self.years = tuple(int(year) for year in YEAR.findall(self.text))
        self.role = "other"

    def is_named_in(self, plain: str) -> bool:
        """Return whether a normalised text contains the title as whole words.

        Args:
            plain: Text, normalised by :func:`~graphrerank.text.normalize_entity`.
        """
        name = normalize_entity(self.name)
        return len(name) >= NEAR_TITLE and f" {name} " in f" {plain} "


def read_passages(question: Question, texts: Sequence[str]) -> list[ReaderPassage]:
    """Split the passages of a context, and set their roles.

    Args:
        question: Question that the passages are retrieved for.
        texts: Texts of the passages in order.

    Returns:
        Passages in order.
    """
    passages = [ReaderPassage(rank, text) for rank, text in enumerate(texts)]
    asked = [passage for passage in passages if passage.is_named_in(question.plain)]
    from_asked = " ".join(passage.plain for passage in asked)
    for passage in passages:
        if passage in asked:
            passage.role = "asked"
        elif passage.is_named_in(from_asked):
            passage.role = "linked"
    return passages


def linked_from(passage: ReaderPassage, passages: Sequence[ReaderPassage]) -> ReaderPassage | None:
    """Return the first other passage whose title occurs in the text of the given passage, or None.

    Args:
        passage: Passage with the text.
        passages: Passages to search.
    """
    return next((other for other in passages if other.rank != passage.rank and other.is_named_in(passage.plain)), None)


def answer_spans(question_text: str, texts: Sequence[str]) -> list[AnswerSpan]:
    """List the candidate answers in the packed passages. A text may occur several times.

    Args:
        question_text: Text of the question.
        texts: Texts of the passages in order.

    Returns:
        Spans with their features. For a yes/no question, these are "yes" and "no".
    """
    question = Question(question_text)
    passages = read_passages(question, texts)
    if question.kind == YES_NO:
        return list(_yes_no(question, passages))
    spans = [span for passage in passages for span in _in_passage(question, passage)]
    return [*spans, *_options(question, passages)]


def _in_passage(question: Question, passage: ReaderPassage) -> Iterator[AnswerSpan]:
    if passage.title:
        yield AnswerSpan(passage.name, _features(question, passage, "title", passage.name, ("", ""), "0.0", 0))
    for number, (start, stop) in enumerate(split_sentences(passage.text)[:MAX_SENTENCES]):
        sentence = passage.text[start:stop]
        shared = len(question.stems & set(words(sentence)))
        for kind, form in _FORMS.items():
            for position, match in enumerate(islice(form.finditer(sentence), MAX_SPANS)):
                sides = sentence[max(0, match.start() - REACH) : match.start()], sentence[match.end() :][:REACH]
                where = f"{min(number, 3)}.{min(position, 4)}"
                yield AnswerSpan(match[0], _features(question, passage, kind, match[0], sides, where, shared))


def _features(
    question: Question, passage: ReaderPassage, kind: str, text: str, sides: tuple[str, str], where: str, shared: int
) -> tuple[str, ...]:
    """Return the names of a span's features.

    Args:
        question: Question to answer.
        passage: Passage that contains the span.
        kind: Form of the span, a key of ``_FORMS``, or ``title``.
        text: Text of the span.
        sides: Text before and after the span.
        where: Number of the sentence and number of the span in it, such as ``0.2``.
        shared: Number of words that the question and the sentence share.
    """
    wanted, role = question.wanted, passage.role
    left, right = sides
    overlap = _overlap(set(words(text)), question.stems)
    before, after = left.lower().split()[-NEAR_WORDS:], right.lower().split()[:NEAR_WORDS]
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


def _overlap(span_stems: Set[str], question_stems: Set[str]) -> str:
    """Return whether the question contains ``none``, ``some`` or ``all`` words of a span."""
    if not span_stems & question_stems:
        return "none"
    return "all" if span_stems <= question_stems else "some"


def _options(question: Question, passages: Sequence[ReaderPassage]) -> Iterator[AnswerSpan]:
    """Yield the titles that the question offers as alternatives, with features that compare years."""
    if " or " not in question.lower:
        return
    offered = [passage for passage in passages if passage.role == "asked"]
    not_offered = [passage for passage in passages if passage.role != "asked"]
    for passage in offered:
        names = ["option", f"option {question.wanted}"]
        other = next((each for each in offered if each.title != passage.title), None)
        linked = linked_from(passage, not_offered), None if other is None else linked_from(other, not_offered)
        for label, (first, second) in (("own", (passage, other)), ("linked", linked)):
            for index, step in ((0, "first"), (1, "second"), (-1, "last")):
                order = _order(first, second, index)
                names += [f"option {label} {step} {order} {cue} {question.turn}" for cue in question.cues]
                names += [f"option {label} {step} {order} {cue}" for cue in question.cues]
        yield AnswerSpan(passage.name, tuple(names))


def _yes_no(question: Question, passages: Sequence[ReaderPassage]) -> Iterator[AnswerSpan]:
    """Yield "yes" and "no", with features of the words that the relevant passages have in common."""
    relevant = [passage for passage in passages if passage.role == "asked"]
    linked = [linked_from(passage, passages) for passage in relevant]
    relevant += [passage for passage in linked if passage is not None]
    stems = [set(words(passage.text[:300])) - question.stems for passage in relevant]
    shared: set[str] = set().union(*(one & other for one, other in combinations(stems, 2)))
    names = [f"shared {min(len(shared), 6)}", f"read {len(relevant)}", *(f"word {stem}" for stem in question.relations)]
    names += [f"both {stem}" for stem in sorted(shared)]
    for answer in ("yes", "no"):
        yield AnswerSpan(answer, tuple(f"{answer} {name}" for name in names))


def _order(first: ReaderPassage | None, second: ReaderPassage | None, index: int) -> str:
    """Return whether the year of the first passage at an index is ``less``, ``same``, ``more`` or ``unknown``."""
    year, other_year = (_year(passage, index) for passage in (first, second))
    if year is None or other_year is None:
        return "unknown"
    if year == other_year:
        return "same"
    return "less" if year < other_year else "more"


def _year(passage: ReaderPassage | None, index: int) -> int | None:
    """Return a year of a passage by its index, which may be negative. None if there is no such year."""
    if passage is None or not -len(passage.years) <= index < len(passage.years):
        return None
    return passage.years[index]
