"""Wording of drafted questions: phrases and questions that a passage itself suggests, without a language model.

Changelogs, licences, lists of names, navigation, tables of numbers and code without a description suggest none.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import yaml
from bm25s.stopwords import STOPWORDS_EN_PLUS
from pydantic import BaseModel

from graphrerank.text import split_sentences
from graphrerank.text.languages import CHARACTERS, ENGLISH, PLAIN, UNSPACED, language_of
from graphrerank.text.stems import STOP_WORDS

MAX_PHRASE_WORDS = 4
MAX_SHORT_CLAUSE_WORDS, MAX_LONG_CLAUSE_WORDS = 10, 26  # of a clause in a short question and in a long one
MIN_PASSAGE_WORDS = 8  # of a passage
LETTERS, STOPS = 0.7, 0.2  # least shares of a passage's characters and words: below are tables, code and lists of names
LISTED, CODED = 0.3, 0.25  # shares of a passage's lines from which on it is a list of changes, or code

_NO_TITLE = re.compile(
    r"change.?log|release.?notes?|\breleases?\b|what.?s.?new|\bhistory\b|\bnews\b|licen[sc]e|copying|\bauthors?\b"
    r"|contributors|credits|sponsors|acknowledg|copyright|\bpeople\b|translations|sitemap|navigation|\btoc\b"
    r"|bibliography|^references$|further reading|see also|external links|table of contents|code of conduct"
    r"|(?:^|[>/ ])v?\d+\.\d+(?:\.\w+)*\b|\b\d{4}-\d\d-\d\d\W*$|änderungsprotokoll|versionshinweise",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"\s*(?:[-*•+]\s.*(?:\(?#\d+|\bPR\b|\bby @|\bin https?:|pull/\d+)"
    r"|\W*v?\d+\.\d+[.\d]*\W*(?:\(?\d{4}-\d\d-\d\d\)?|$)|\W*\d{4}-\d\d-\d\d)"
)
_LICENCE = re.compile(
    r"hereby granted|without warranty|warranties|licensed under|redistribut|all rights reserved"
    r"|copyright (?:\(c\)|©|\d)|permission notice",
    re.IGNORECASE,
)
_CODE_FILE = re.compile(
    r"\.(?:py|pyi|js|jsx|mjs|ts|tsx|go|java|rs|c|h|cc|cpp|hpp|kt|rb|cs|php|swift|scala|sh|lua)(?:$|[#:\s>])"
)
_CODE_LINE = re.compile(
    r"\s*(?:def |class |import |from \S+ import|return\b|if .*[:{]$|for .*[:{]$|else\b|func |fn |pub |let |const |var "
    r"|@\w|#include|package |public |private |static |\}|\)|assert |self\.|\w+ = |\w+\()|.*[;{]\s*$"
)
_NAMED = re.compile(
    r"^[ \t]*(?:(?:export|public|private|protected|static|final|abstract|pub(?:\([^)]*\))?|async|default|unsafe) +)*"
    r"(def|class|func|function|fn|interface|struct|trait|enum) +(?:\([^)\n]*\) *)?([A-Za-z]\w*)",
    re.MULTILINE,
)
_DOCSTRING = re.compile(r'[^\n]*(?:\n[^\n"\']*){0,12}?\s*(?:[rR]?"""|\'\'\')\s*([A-Z][^"\'\n]{8,})')
_COMMENT = re.compile(r"(?:^[ \t]*(?:///?!?|\*|#)[ \t]?.*\n)+\Z", re.MULTILINE)
_COMMENT_SIGN = re.compile(r"^[ \t]*(?:/\*\*?|///?!?|\*|#)[ \t]?", re.MULTILINE)
_DOES = re.compile(r"(?!Whether)([A-Z][a-z]+) ((?:the|an?|all|any|each|every|whether|if|this|its|one)\b.*)")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_CUT = "\0"  # in place of code and markup: no phrase goes across it
_FENCE = re.compile(r"^ *(```+|~~~+).*?(?:^ *\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_MARKUP = (  # what is removed, and what stays of it
    (re.compile(r"!?\[([^\]\[\n]*)\](?:\([^()\n]*\)|\[[^\]\n]*\])?_?"), r"\1"),
    (re.compile(r"(?:https?|ftp)://\S+|\bwww\.\S+|\S+@\S+\.\w+|\{\{.*?\}\}|\{[%#.:][^}]*\}|<[^<>\n]{1,300}>"), _CUT),
    (re.compile(r"``?([A-Za-z][\w-]*)``?"), r"\1"),
    (re.compile(r"`[^`\n]*`|\S*[/\\=(){}\[\]<>$|~^@#%&]\S*"), _CUT),
    (re.compile(r"\*\*|__(?=\w)|(?<=\w)__|(?<!\w)[*_]|[*_](?!\w)"), ""),
)
_NO_PROSE = re.compile(
    r"\s*(?:[|+>$]|\.\. |:\w[^:]*:|>>>|\.\.\.|//|!!!|\?\?\?|:::|    |\t|#!|[-=~^\"'*+#]{3,}\s*$|[\w\"'-]+:\s*$)"
)
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d+[.)]|#+)\s+")
_TOKEN = re.compile(r"[^\W_]+(?:[-'\u2019._][^\W_]+)*|\S")
_WORD = re.compile(r"[^\W_]+(?:[-'\u2019._][^\W_]+)*")
_UNSPACED_CLAUSE = re.compile(rf"[{UNSPACED}A-Za-z0-9 ]+")
_CLAUSE = re.compile(r"(?!如果|然后|此时|再|并|等|但|且|因|由|最后|直到)[^\d是的和或也则那]+")
_CUT_CLAUSE = re.compile(
    r",| - | (?:because|so that|which|if|when|but|while|as well|unless|until|though|since|where|that|and then"
    r"|rather than|instead of|(?:by )?using|as follows|like (?:so|this)) "
)
_PLAIN = re.compile(r"[\w'\u2019.,-]+(?: [\w'\u2019.,-]+)*")
_ADDRESSED = re.compile(
    r"^(?:\(\d+\w?\) |@?[\w.-]+[:,] (?=\w+ \w))"
)  # numbers of paragraphs, and whom a turn addresses
_QUESTION = re.compile(r"(?:[^\s\0?]+ ){4,20}[^\s\0?]+ ?\?+")


def _set(words: str, verbs: str = "") -> frozenset[str]:
    """Return words, and the regular forms of verbs."""
    stems = {verb: verb.removesuffix("e") for verb in verbs.split()}
    forms = (f for verb, stem in stems.items() for f in (verb, f"{verb}s", f"{verb}es", f"{stem}ed", f"{stem}ing"))
    return frozenset([*words.split(), *forms])


_VAGUE = _set(
    "it its this that these those they them he she his her him such there here above below so thing things dies diese"
    " diesen dieser dieses diesem es folgendes davon dafür damit darüber denselben dasselbe dort hier esto eso esta"
    " este estos estas ello"
)
_NO_HOW = _set(
    "be not have see find refer read notice think expect imagine note do say know assume understand need want get also"
    " only never always go look check rely learn consider choose let simply come"
)
_GENERAL = _set(
    "overview introduction example examples usage motivation rationale abstract syntax notes note summary background"
    " specification methods functions description details basics general options parameters arguments returns api"
    " reference configuration implementation discussion conclusion appendix recap einführung beispiel beispiele"
    " zusammenfassung übersicht hinweise resumen introducción ejemplo ejemplos recapitulación exemple exemples"
    " 操作 计算 附加内容 总结 小结 回顾 介绍"
)
_BEFORE_VERBS = _set("to can will must should could would may might not it they you we which that does did i cannot")


_ASKED = {  # in a pattern
    "<CLAUSE>": r"(?P<clause>[^\W\d_]+ [^.;:!?()\0\"\u201c\u201d]{6,})",
    "<NAME>": r"(?P<name>[^\W\d_][\w'\u2019-]*(?: [\w'\u2019-]+){0,3})",
    "<INFINITIVE>": r"(?:aber |auch |dann |nun |jetzt |einfach )*(?P<clause>[^,.;:!?()\0]{8,}?(?:en|ern|eln))[.,:]",
    "<CHARACTERS>": r"[^,\u3002\uff0c\uff1b\uff1a\uff01\uff1f\uff08\uff09\u3001;:!?()\s\0]",
}


class Templates(BaseModel):
    """Questions of a language, and words that its phrases are found by; ``drafted_wording.yaml`` explains each."""

    sentences: Mapping[str, Any] = {}
    patterns: Sequence[tuple[str, str]] = ()
    joined: Sequence[str] = ("{} {}",)
    hinted: Sequence[str] = ("{} {}",)
    qualified: str = "{0} {1}"
    both: str = "{}, {}"
    situated: Sequence[str] = ("{0} {1}: {2}",)
    listed: Sequence[str] = ("{}",)
    linked: Sequence[str] = ("{}",)
    columns: Sequence[str] = ()
    headed: Sequence[str] = ("{} {}",)
    changed: Mapping[str, str] = {}
    determiners: str = ""
    breaks: str = ""
    verbs: str = ""
    synonyms: str = ""

    @cached_property
    def answered(self) -> list[tuple[re.Pattern[str], list[str]]]:
        """Patterns of sentences, and the questions that these answer."""
        listed = list(self.patterns)
        if self.sentences:
            start = rf"^(?P<subject>{self.sentences['start']} [\w' -]{{3,45}}?) (?P<verb>{self.sentences['verbs']})"
            start += r" (?P<clause>[^,.;:!?()\0\"]{8,90}?)"
            listed = [*((start + end, asked) for end, asked in self.sentences["ends"].items()), *listed]
        for name, pattern in _ASKED.items():
            listed = [(sentence.replace(name, pattern), asked) for sentence, asked in listed]
        return [(re.compile(sentence), asked.split("|")) for sentence, asked in listed]


@cache
def templates_of(language: str) -> Templates:
    """Return the templates of a language; of others than those of ``drafted_wording.yaml``, phrases side by side."""
    text = files("graphrerank.data").joinpath("drafted_wording.yaml").read_text(encoding="utf-8")
    return Templates(**yaml.safe_load(text).get(language, {}))


@dataclass(frozen=True)
class Wording:
    """Wording that a passage suggests: name, phrases in order, whole and long questions, and those that it asks."""

    name: str
    phrases: Sequence[str]
    questions: Sequence[str]
    long: Sequence[str] = ()
    asked: Sequence[str] = ()  # the questions that the passage itself asks
    is_only: bool = False  # whether it defines names that no other passage defines


class QuestionWriter:
    """Finds what passages of one language suggest; unless ``is_strict``, any passage suggests its words."""

    def __init__(self, language: str, texts: Sequence[str] = (), *, is_strict: bool = True) -> None:
        self.language, self.is_strict = language, is_strict
        self.templates = templates_of(language)
        self.stop_words = STOP_WORDS if language in (ENGLISH, PLAIN) else language_of(language).stop_words
        found_by = templates_of(ENGLISH) if language == PLAIN else self.templates
        self.breaks = self.stop_words | _set(found_by.breaks, found_by.verbs)
        if language in (ENGLISH, PLAIN):
            self.breaks |= set(STOPWORDS_EN_PLUS)
        self.determiners = _set(self.templates.determiners)
        self.is_noun = Counter[str]()  # how much more often a word ends a phrase after a determiner than it is a verb
        for text in texts if self.determiners and is_strict else ():
            self._count_nouns(_TOKEN.findall(text.lower()))
        self.defined = Counter(found[2] for text in texts for found in _NAMED.finditer(text))
        self.common = self.stop_words  # words of which passages of any kind suggest none
        if not is_strict:
            held = Counter(word for text in texts for word in set(_WORD.findall(text.lower())))
            self.common |= {word for word, count in held.items() if count > max(2, len(texts) / 2)}

    def _count_nouns(self, tokens: Sequence[str]) -> None:
        """Count words that end a run of words without stop words after a determiner, and no determiner follows them."""
        start = 0
        for place, token in enumerate([*tokens, "."]):
            if token[0].isalnum() and token not in self.breaks:
                continue
            if place > start and start:
                before, last = tokens[start - 1], tokens[place - 1]
                self.is_noun.subtract(tokens[start : place - 1])
                if token in self.determiners or (before in _BEFORE_VERBS and place == start + 1):
                    self.is_noun[last] -= 2
                elif before in self.determiners:
                    self.is_noun[last] += 2
            start = place + 1

    def wording(self, title: str, text: str, path: str = "") -> Wording | None:
        """Return what a passage suggests; None where nobody would ask for it."""
        if not self.is_strict:
            parts = (_WORD.findall(part) for part in re.split(r"[,.;:\n(){}\[\]|]", text or title))
            kept = ([word for word in part if word[1:] and word.lower() not in self.common] for part in parts)
            listed = dict.fromkeys(" ".join(words[at : at + 4]) for words in kept for at in range(0, len(words), 4))
            name = self._part(title) if text else ""
            name = "" if name.lower() in self.stop_words else name
            columns = [part for part in listed if part.lower() not in name] if name else []
            questions = [form.format(part, name) for part in columns for form in self.templates.columns]
            return Wording(name, list(listed), questions)
        if _NO_TITLE.search(title) or _NO_TITLE.search(path) or len(_LICENCE.findall(text)) >= 2:
            return None
        if _share_of_lines(_CHANGE, text) >= LISTED:
            return None
        is_code = _CODE_FILE.search(title) or _CODE_FILE.search(path)
        if is_code or _share_of_lines(_CODE_LINE, _FENCE.sub("", text)) >= CODED:
            return self._code_wording(title, text)
        prose = paragraphs(text)
        if not self._is_prose(" ".join(prose)):
            return None
        if self.language == CHARACTERS:
            return self._unspaced_wording(title, prose)
        spans = ((part, span) for part in prose for span in split_sentences(part, self.language))
        sentences = [_ADDRESSED.sub("", part[start:stop]) for part, (start, stop) in spans]
        name, section = self._name(title), self._part(title.rpartition(" > ")[2]).lower()
        questions = list[str]()
        is_open = section.rpartition(" ")[2] in self.stop_words
        if self.language == ENGLISH and not is_open and re.match(r"(?:how|wh\w+|can|does|is) ", section):
            questions = [section]
        questions += [question for sentence in sentences for question in self._asked(sentence)]
        long = [question for sentence in sentences for question in self._asked(sentence, MAX_LONG_CLAUSE_WORDS)]
        asked = [sentence.rstrip(" ?") for sentence in sentences if _QUESTION.fullmatch(sentence)]
        asked = [sentence for sentence in asked if not _VAGUE & set(sentence.lower().split()) and _CUT not in sentence]
        phrases = [phrase for sentence in sentences for phrase in self._phrases(sentence)]
        phrases, questions, long = (list(dict.fromkeys(found)) for found in (phrases, questions, long))
        return Wording(name, phrases, questions, long, asked)

    def _is_prose(self, text: str) -> bool:
        """Return whether a text is sentences: mostly letters, and words between which there are stop words."""
        signs = "".join(text.split())
        if not signs or sum(map(str.isalpha, signs)) < LETTERS * len(signs):
            return False
        if self.language == CHARACTERS:
            return len(signs) >= MIN_PASSAGE_WORDS
        words = _WORD.findall(text.lower())
        few = STOPS if self.stop_words else 0
        return len(words) >= MIN_PASSAGE_WORDS and sum(word in self.stop_words for word in words) >= few * len(words)

    def _part(self, part: str) -> str:
        """Return a part of a title as a phrase, without what only says where it stands."""
        words = _WORD.findall(clean(re.sub(r"\(.*?\)|^\W*(?:PEP )?[\d.]+\W", "", part)).replace(_CUT, " "))
        is_number = 2 * sum(any(map(str.isdigit, word)) for word in words) > len(words)
        return "" if is_number or len(words) > 2 * MAX_PHRASE_WORDS else self._lowered(" ".join(words))

    def _name(self, title: str) -> str:
        """Return what a passage is about: its section, with its page where the section alone says too little."""
        *pages, section = (self._part(part) for part in title.split(" > "))
        words = {word for word in section.lower().split() if word not in self.stop_words}
        if len(words - _GENERAL) >= 2 or not pages:
            return "" if words <= _GENERAL else section
        page = [word for word in pages[0].split() if word.lower() not in words]
        page = page[page[:1] != [] and page[0].lower() in self.stop_words :]
        return " ".join([*page, section]) if section and page and len(page) + len(words) <= 2 * MAX_PHRASE_WORDS else ""

    def _lowered(self, text: str) -> str:
        """Write words in lower case that are capitals only as the first ones of a heading or a sentence."""
        words = text.split(" ")
        is_sentence = self.language == ENGLISH and any(word[:1].islower() and len(word) > 3 for word in words[1:])
        for place, word in enumerate(words[:1] if is_sentence else words if self.language != "german" else ()):
            if word[1:].islower() or word.lower() in self.stop_words:
                words[place] = word.lower()
        return " ".join(words)

    def _asked(self, sentence: str, most: int = MAX_SHORT_CLAUSE_WORDS) -> Iterator[str]:
        """Turn a sentence into questions that it answers, of at most ``most`` words that it says."""
        for pattern, questions in self.templates.answered:
            if found := pattern.search(sentence):
                groups = found.groupdict()
                asked = (
                    self._asked_name(groups["name"]) if "name" in groups else self._asked_clause(groups["clause"], most)
                )
                start, _, rest = groups.get("subject", "").partition(" ")
                groups |= {"clause": asked, "subject": f"{start.lower()} {rest}"}
                is_noun = questions[0].startswith("what {verb}") and self.is_noun[groups["verb"]] > 0
                if asked and not is_noun and not _VAGUE & set(groups["subject"].lower().split()):
                    yield from (question.format(asked, **groups) for question in questions)

    def _asked_name(self, name: str) -> str:
        words = name.lower().split()
        is_known = set(words) & (self.breaks - {"of", "de"} | _VAGUE) or set(words) <= _GENERAL
        return "" if is_known or len(name) < MAX_PHRASE_WORDS or not _PLAIN.fullmatch(name) else self._lowered(name)

    def _asked_clause(self, text: str, most: int) -> str:
        if self.language == CHARACTERS:
            return text.strip()
        short = (_CUT_CLAUSE.split(f"{text} ")[0] if self.language == ENGLISH else text.split(",")[0]).strip(" ,")
        clause = text.strip(" ,") if most > MAX_SHORT_CLAUSE_WORDS else short
        words = clause.lower().split()
        fewest = most // 3 if most > MAX_SHORT_CLAUSE_WORDS else 1
        if _VAGUE & set(short.lower().split()) or not _PLAIN.fullmatch(clause) or not fewest <= len(words) <= most:
            return ""
        is_open = words[-1] in self.stop_words - {"up", "out", "off"} or words[0] in _NO_HOW
        if is_open or sum(word not in self.stop_words for word in words) < 2:
            return ""
        return " ".join(self.templates.changed.get(word.lower(), word) for word in clause.split())

    def _phrases(self, sentence: str) -> Iterator[str]:
        """List noun phrases: runs of words without stop words between them, which end with a noun."""
        run: list[str] = []
        for number, token in enumerate([*_TOKEN.findall(sentence), _CUT]):
            word = token.lower()
            is_word = token[0].isalnum() and word not in self.breaks and len(word) > 1 and word[-2:] != "ly"
            if self.language == "german":  # no capital after a full stop, and no verb, which ends as no adjective does
                is_word = is_word and number > 0 and (not token.islower() or word[-1] in "enrsm")
            if is_word:
                run.append(self._lowered(token) if number == 0 else token)
                continue
            if word in self.determiners and word != "of":
                run = run[:-1]  # a verb
            if run and len(run) <= MAX_PHRASE_WORDS and self._ends_with_noun(run):
                yield " ".join(run)
            run = []

    def _ends_with_noun(self, run: Sequence[str]) -> bool:
        last = run[-1].lower()
        if len(last) <= 2 or not last.isalpha():
            return False
        if self.language == "german":
            return run[-1][0].isupper()
        is_verb = last.endswith(("ed", "ing") if len(run) == 1 else "ed")
        return not self.determiners or (self.is_noun[last] > (len(run) == 1) and not is_verb)

    def _unspaced_wording(self, title: str, prose: Sequence[str]) -> Wording:
        runs = [run.strip() for part in prose for run in _UNSPACED_CLAUSE.findall(part)]
        clauses = [run for run in runs if 2 <= len(run) <= 16 and _CLAUSE.fullmatch(run)]
        page, _, section = re.sub("[`*]", "", title).rpartition(" > ")
        name = page.partition(" > ")[0] or section
        is_headed = page and section not in _GENERAL
        headed = [form.format(name, section) for form in self.templates.headed] if is_headed else []
        sentences = (part[start:stop] for part in prose for start, stop in split_sentences(part, self.language))
        asked = [question for sentence in sentences for question in self._asked(sentence)]
        asked = [question if name in question else f"{name}{question}" for question in asked]
        return Wording(name, clauses, [*headed, *asked])

    def _code_wording(self, title: str, text: str) -> Wording | None:
        """Ask for functions and classes by their first sentence, and by the words of their names."""
        names, questions, is_only = list[str](), list[str](), True
        for found in _NAMED.finditer(text):
            kind = "class" if found[1] in ("class", "struct", "interface", "trait", "enum") else "function"
            name = " ".join(part.lower() for part in _PARTS.findall(found[2]))
            is_test = name.startswith("test ")
            if (4 if is_test else 2) <= len(name.split()) <= 2 * MAX_PHRASE_WORDS and not re.search(r"\d", name):
                names.append(name)
                is_only &= self.defined[found[2]] <= 1
                asked = (f"where is the {name} {kind} defined", f"where is {found[2]} defined", f"{found[2]} {kind}")
                questions += [f"test for {name[5:]}"] if is_test else asked
            if described := _described(kind, _description(text, found)):
                questions.append(described)
        module = re.sub(rf"{_CODE_FILE.pattern}.*|[\s#>].*", "", title)
        words = [word.lower() for word in _PARTS.findall(re.split(r"[/.]|::", module)[-1])]
        name = names[0] if len(names) == 1 else " ".join(words[:MAX_PHRASE_WORDS])
        return Wording(name, names, questions, is_only=is_only) if questions else None


def clean(text: str) -> str:
    """Remove markup, links, addresses, paths and code; a cut remains where no phrase may go on."""
    for pattern, kept in _MARKUP:
        text = pattern.sub(kept, text)
    return text


def paragraphs(text: str) -> list[str]:
    """List the paragraphs and list items of a passage's prose, each in one line and clean."""
    found: list[list[str]] = [[]]
    for line in _FENCE.sub("\n\n", text).splitlines():
        item = _ITEM.match(line)
        is_prose = line.strip() and (item is not None or not _NO_PROSE.match(line))
        if item is not None or not is_prose:
            found.append([])
        if is_prose:
            found[-1].append(line[item.end() if item else 0 :].strip())
    return [clean(" ".join(lines)) for lines in found if lines]


def _share_of_lines(pattern: re.Pattern[str], text: str) -> float:
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(pattern.match(line) is not None for line in lines) / max(1, len(lines))


def _description(text: str, found: re.Match[str]) -> str:
    """Return the docstring below a definition, or the comment above it."""
    if below := _DOCSTRING.match(text, found.end(), found.end() + 2000):
        return below[1]
    above = _COMMENT.search(text[max(0, found.start() - 2000) : found.start()])
    return " ".join(_COMMENT_SIGN.sub("", above[0]).split()) if above else ""


def _described(kind: str, description: str) -> str:
    """Return the question that a definition's first sentence answers, if it does."""
    sentence = clean(description).strip()
    start, stop = next(iter(split_sentences(sentence)), (0, 0))
    first = _CUT_CLAUSE.split(f"{sentence[start:stop].strip(' .:')} ")[0].strip(" .:,")
    words = first.lower().split()
    if not 3 <= len(words) <= MAX_SHORT_CLAUSE_WORDS or not _PLAIN.fullmatch(first) or _VAGUE & set(words):
        return ""
    if kind == "class":
        return f"class for {first.partition(' ')[2]}" if words[0] in ("a", "an", "the") else ""
    return f"which function {_third_person(words[0])} {does[2]}" if (does := _DOES.fullmatch(first)) else ""


def _third_person(verb: str) -> str:
    if re.search("[^s]s$", verb):
        return verb
    return re.sub("(?<=[^aeiou])y$", "ie", verb) + ("es" if re.search("(?:[sxz]|[cs]h|o)$", verb) else "s")
