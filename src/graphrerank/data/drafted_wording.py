"""Wording of drafted questions: phrases and questions that a passage itself suggests, without a language model.

Changelogs, licences, lists of names, navigation, tables of numbers and code without a description suggest none.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from graphrerank.text import split_sentences
from graphrerank.text.languages import CHARACTERS, ENGLISH, PLAIN, UNSPACED, language_of
from graphrerank.text.stems import STOP_WORDS

MOST_WORDS, MOST_CLAUSE = 4, 10  # of a phrase, and of a clause in a question
FEWEST_WORDS = 12  # of a passage
LETTERS, STOPS = 0.7, 0.2  # least shares of a passage's characters and words: below are tables, code and lists of names
LISTED, CODED = 0.3, 0.25  # shares of a passage's lines from which on it is a list of changes, or code

_NO_TITLE = re.compile(
    r"change.?log|release.?notes?|\breleases?\b|what.?s.?new|\bhistory\b|\bnews\b|licen[sc]e|copying|\bauthors?\b"
    r"|contributors|credits|sponsors|acknowledg|copyright|\bpeople\b|translations|sitemap|navigation|\btoc\b"
    r"|bibliography|^references$|further reading|see also|external links|table of contents|code of conduct"
    r"|(?:^|[>/ ])v?\d+\.\d+(?:\.\w+)*\b|\b\d{4}-\d\d-\d\d\b|änderungsprotokoll|versionshinweise",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"[-*•+]\s.*(?:\(?#\d+|\bPR\b|\bby @|\bin https?:|pull/\d+)|.*:(?:issue|pull|pr|user|bug):`|\W*v?\d+\.\d+[.\d]*\W*"
    r"(?:\(?\d{4}-\d\d-\d\d\)?|$)|\W*\d{4}-\d\d-\d\d"
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
_DOCSTRING = re.compile(r'\A[^\n]*(?:\n[^\n"\']*){0,12}?\s*(?:[rR]?"""|\'\'\')\s*([A-Z][^"\'\n]{8,})')
_COMMENT = re.compile(r"(?:^[ \t]*(?:///?!?|\*|#)[ \t]?.*\n)+\Z", re.MULTILINE)
_COMMENT_SIGN = re.compile(r"^[ \t]*(?:/\*\*?|///?!?|\*|#)[ \t]?", re.MULTILINE)
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_CUT = "\0"  # in place of code and markup: no phrase goes across it
_FENCE = re.compile(r"^ *(```+|~~~+).*?(?:^ *\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_MARKUP = (  # what is removed, and what stays of it
    (re.compile(r"!?\[([^\]\[]*)\]\([^()\n]*\)"), r"\1"),
    (re.compile(r"!?\[\[(?:[^\]|]*\|)?([^\]|]*)\]\]"), r"\1"),
    (re.compile(r":[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`>]*>)?`"), r"`\1`"),
    (re.compile(r"`([^`<\n]+?)\s*<[^>`]*>`__?"), r"\1"),
    (re.compile(r"\[([^\]\[\n]*)\](?:\[[^\]\n]*\])?_?"), r"\1"),
    (
        re.compile(
            r"(?:https?|ftp)://\S+|\bwww\.\S+|\S+@\S+\.\w+|\{\{.*?\}\}|\{%.*?%\}|\{[#.:%][^}]*\}|<[^<>\n]{1,300}>"
        ),
        _CUT,
    ),
    (re.compile(r"``?([A-Za-z][\w-]*)``?"), r"\1"),
    (re.compile(r"`[^`\n]*`"), _CUT),
    (re.compile(r"\S*[/\\=(){}\[\]<>$|~^@#%&]\S*"), _CUT),
    (re.compile(r"\*\*|__(?=\w)|(?<=\w)__|(?<!\w)[*_]|[*_](?!\w)"), ""),
)
_NO_PROSE = re.compile(
    r"\s*(?:[|+>$]|\.\. |:\w[^:]*:|>>>|\.\.\.|//|!!!|\?\?\?|:::|    |\t|#!|[-=~^\"'*+#]{3,}\s*$|[\w\"'-]+:\s*$)"
)
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d+[.)]|#+)\s+")
_TOKEN = re.compile(r"[^\W_]+(?:[-'\u2019._][^\W_]+)*|\S")
_WORD = re.compile(r"[^\W_]+(?:[-'\u2019._][^\W_]+)*")
_CLAUSE = re.compile(rf"[{UNSPACED}A-Za-z0-9 ]+")

_VERBS_WORDS = (
    "itself exists refers due prior anticipate respective actual necessary additional ongoing dummy"
    " relies focuses largest"
    " particular whether innermost separable sensible entire designated descriptive special left-to-right"
    " use uses used using make makes made get gets got set sets add adds added adding allow allows allowed provide "
    "provides provided contain contains call calls called calling return returns returned returning run runs "
    "running ran need needs needed want wants see sees seen take takes taken give gives given go goes come comes "
    "work works know known let lets find found keep keeps kept means mean become becomes include includes "
    "included including create creates created creating define defines defined write writes written read reads "
    "show shows shown look looks try tries help helps require requires required support supports supported "
    "specify specifies specified consider considered note following follows follow like likely just even still "
    "already however therefore thus instead also rather quite very really simply usually often always never "
    "sometimes currently now here later first second last next previous another many much few several one two "
    "three new same different able possible available may might must should could would can cannot don't doesn't "
    "isn't won't can't etc e.g i.e example above below within without via per upon since while though although "
    "either neither both every any none something anything everything nothing someone based pass passes passed "
    "passing put puts change changes changed happen happens seem seems say says said think start starts started "
    "end ends ended apply applies applied implement implements implemented depending ie eg see please sure well "
    "good better best own let's it's that's there's i'm we're you're they're using"
)
_VERBS = frozenset(_VERBS_WORDS.split())
_VAGUE_WORDS = (
    "it its this that these those they them their he she his her him such there here above below so thing things"
)
_VAGUE = frozenset(_VAGUE_WORDS.split())
_CUT_CLAUSE = re.compile(
    r",| - | because | so that | which | if | when | but | while | as well | unless | until | though | since | where "
    r"| that | and then | rather than | instead of | by using | using | as follows| like so| like this"
)
_NO_HOW_WORDS = (
    "be not have see find refer read notice think expect imagine note do say know assume understand need want get "
    "also only never always go look check rely learn consider choose let simply come"
)
_NO_HOW = frozenset(_NO_HOW_WORDS.split())
_DOES_WORDS = (  # verbs that begin a function's description
    "return get set check create build make find read write parse load save add remove delete update convert compute"
    " format print render run start stop open close handle process register resolve validate yield iterate collect call"
    " configure initialize apply compare merge split sort filter match log raise wrap send receive fetch copy move"
    " ensure enable disable insert append extend generate determine extract decode encode look show display report"
    " install normalize calculate count drop draw list join store search replace escape clear reset accept execute"
)
_DOES = frozenset(_third for word in _DOES_WORDS.split() for _third in (word, f"{word}s", f"{word}es"))
_MINE = {"your": "my", "you": "I", "yours": "mine", "yourself": "myself", "our": "my", "we": "I", "their": "the"}
_MEIN = {"ihr": "mein", "ihre": "meine", "ihren": "meinen", "ihrem": "meinem", "ihrer": "meiner", "ihres": "meines"}


@dataclass(frozen=True)
class _Templates:
    """Questions of a language; each expression has the group ``x``, which the question takes."""

    patterns: Sequence[tuple[re.Pattern[str], Sequence[str]]]
    joined: Sequence[str]  # of phrases of two passages
    hinted: Sequence[str]  # of the name of a passage, and words of another
    words: Mapping[str, str] = field(default_factory=dict)  # that a question changes


def _patterns(*pairs: tuple[str, str]) -> list[tuple[re.Pattern[str], list[str]]]:
    return [(re.compile(pattern), questions.split("|")) for pattern, questions in pairs]


_REST = r"(?P<x>[a-z]+ [^.;:!?()\0\"\u201c\u201d]{6,})"
_NAME = r"(?P<x>[^\W\d_][\w'\u2019-]*(?: [\w'\u2019-]+){0,3})"
_SUBJECT = r"^(?:The |An? )?(?P<s>[\w' -]{3,40}?)"
TEMPLATES = {
    ENGLISH: _Templates(
        _patterns(
            (
                r"\b(?:[Yy]ou|[Ww]e|[Uu]sers|[Dd]evelopers) (?:can|may|could|have to|need to|must|should|want to)"
                rf" (?:also |then |now |simply |just |easily )*{_REST}",
                "how do I {x}|how to {x}|how can I {x}",
            ),
            (rf"\b(?:allows?|enables?|lets|helps?) (?:you|users) (?:to )?{_REST}", "how do I {x}|how to {x}"),
            (rf"^(?:In order )?[Tt]o {_REST}", "how do I {x}|how to {x}"),
            (rf"^(?:An? )?{_NAME} is (?:an?|the|one of)\b", "what is {x}|what is {x} used for"),
            (rf"^{_NAME} are (?:an?|the|used|all|special|usually)\b", "what are {x}"),
            (r"\b(?:[Ii]f|[Ww]hen) you (?P<x>(?!are|have|want|need|would|prefer|like|re)[a-z]+ [^,.;:!?()\0]{6,60}),",
             "what happens if I {x}|what happens when I {x}"),
            (rf"{_SUBJECT} (?P<v>is|are|was) (?P<x>[\w' -]{{4,50}}?),? because\b", "why {v} {s} {x}"),
            (rf"{_SUBJECT} does not (?P<x>[\w' -]{{4,50}}?),? because\b", "why does {s} not {x}"),
        ),
        ("{} with {}", "{} and {}", "{} {}", "how do I use {} with {}", "how does {} work with {}"),
        ("{0} {1}", "{0} with {1}", "{0} and {1}", "{1} in {0}"),
        _MINE,
    ),
    "german": _Templates(
        _patterns(
            (r"\b(?:Sie|[Mm]an|[Dd]u|[Ww]ir) (?:können|kannst|kann|müssen|sollten) (?:auch |dann |nun |einfach )*"
             r"(?P<x>[^,.;:!?()\0]{8,}?(?:en|ern|eln))[.,:]", "wie kann ich {x}"),
            (r"\b(?:können|müssen|sollten) Sie (?:auch |dann |nun |jetzt |einfach )*"
             r"(?P<x>[^,.;:!?()\0]{8,}?(?:en|ern|eln))[.,:]", "wie kann ich {x}"),
            (rf"^(?:Ein |Eine )?{_NAME} ist (?:ein|eine|der|die|das)\b", "was ist {x}"),
        ),
        ("{} mit {}", "{} und {}", "{} {}"),
        ("{0} {1}", "{1} {0}", "{0} und {1}"),
        _MEIN,
    ),
    "french": _Templates(
        _patterns(
            (rf"\b(?:[Vv]ous|[Oo]n) (?:pouvez|peut|devez|doit) {_REST}", "comment {x}"),
            (rf"^Pour {_REST}", "comment {x}"),
            (rf"^(?:Une? |Le |La )?{_NAME} est (?:une?|le|la)\b", "qu'est-ce que {x}"),
        ),
        ("{} et {}", "{} avec {}", "{} {}", "comment utiliser {} avec {}"),
        ("{} {}", "{1} de {0}", "{0} et {1}"),
    ),
    "spanish": _Templates(
        _patterns(
            (rf"\b(?:[Pp]uedes?|[Pp]ueden|[Pp]odemos|[Dd]ebes?) {_REST}", "cómo {x}|cómo puedo {x}"),
            (rf"^Para {_REST}", "cómo {x}"),
            (rf"^(?:Una? |El |La )?{_NAME} es (?:una?|el|la)\b", "qué es {x}"),
        ),
        ("{} y {}", "{} con {}", "{} {}", "cómo usar {} con {}"),
        ("{} {}", "{1} de {0}", "{0} y {1}"),
    ),
}  # fmt: skip
DETERMINERS = {
    ENGLISH: "the a an its your our my their his her each this these those any no every some another of",
    "french": "le la les un une des du de l d ce cette ces son sa ses votre vos mon ma mes",
    "spanish": "el la los las un una unos unas del de su sus este esta mi mis",
}
_VAGUE_GERMAN_WORDS = (
    "meisten gleiche gleichen verschiedene verschiedenen bestimmte bestimmten weitere weiteren andere anderen "
    "viele vielen eigene eigenen einfach einfache einfacher einfaches bessere besseren wirklich genau bereits "
    "möglicherweise weise teil fall fälle neben zeit beispiel beispiele sache dinge wert"
)
_VAGUE_GERMAN = frozenset(_VAGUE_GERMAN_WORDS.split())
VERB_AFTER_WORDS = "to can will must should could would may might not it they you we which that does did i cannot"
VERB_AFTER = frozenset(VERB_AFTER_WORDS.split())
GENERAL_WORDS = (
    "overview introduction example examples usage motivation rationale abstract syntax notes note summary "
    "background specification methods functions description details basics general options parameters arguments "
    "returns api reference configuration implementation discussion conclusion appendix recap einführung beispiel "
    "beispiele zusammenfassung übersicht hinweise resumen introducción ejemplo ejemplos recapitulación exemple "
    "exemples"
)
GENERAL = frozenset(GENERAL_WORDS.split())
KEYWORDS = _Templates((), ("{} {}",), ("{} {}",))  # of other languages


@dataclass(frozen=True)
class Wording:
    """What a passage suggests: its name, phrases in their order, and whole questions."""

    name: str
    phrases: Sequence[str]
    questions: Sequence[str]


class Writer:
    """Finds what passages of one language suggest; unless ``is_strict``, any passage suggests its words."""

    def __init__(self, language: str, texts: Iterable[str] = (), *, is_strict: bool = True) -> None:
        self.language, self.is_strict = language, is_strict
        self.templates = TEMPLATES.get(language, KEYWORDS) if is_strict else KEYWORDS
        spoken = ENGLISH if language == PLAIN else language
        self.stop_words: Set[str] = STOP_WORDS if spoken == ENGLISH else language_of(language).stop_words
        further = {ENGLISH: _VERBS, "german": _VAGUE_GERMAN}.get(spoken, frozenset())
        self.breaks = self.stop_words | further
        self.determiners = frozenset(DETERMINERS.get(language, "").split())
        self.is_noun = Counter[str]()  # how much more often a word ends a phrase after a determiner than it is a verb
        for text in texts if self.determiners else ():
            self._count_nouns(_TOKEN.findall(text.lower()))

    def _count_nouns(self, tokens: Sequence[str]) -> None:
        """Count words that end a run of words without stop words after a determiner, and no determiner follows them."""
        start = 0
        for place, token in enumerate([*tokens, "."]):
            if token[0].isalnum() and token not in self.breaks:
                continue
            if place > start and start:
                before, last = tokens[start - 1], tokens[place - 1]
                self.is_noun.subtract(tokens[start : place - 1])
                if token in self.determiners or (before in VERB_AFTER and place == start + 1):
                    self.is_noun[last] -= 2
                elif before in self.determiners:
                    self.is_noun[last] += 2
            start = place + 1

    def wording(self, title: str, text: str, path: str = "") -> Wording | None:
        """Return what a passage suggests; None where nobody would ask for it."""
        if not self.is_strict:
            words = [
                word for word in _WORD.findall(text or title) if len(word) > 1 and word.lower() not in self.stop_words
            ]
            return Wording("", [" ".join(words[start : start + 3]) for start in range(0, len(words), 3)], [])
        if _NO_TITLE.search(title) or _NO_TITLE.search(path) or is_list_of_changes(text):
            return None
        code = _CODE_FILE.search(title) or _CODE_FILE.search(path)
        if code is not None or share_of_code(text) >= CODED:
            return self._code_wording(title, text)
        prose = paragraphs(text)
        if not self._is_prose(prose):
            return None
        if self.language == CHARACTERS:
            return self._unspaced_wording(title, prose)
        sentences = [part[start:stop] for part in prose for start, stop in split_sentences(part, self.language)]
        name = self._name(title)
        questions = [*self._headed(title), *(found for sentence in sentences for found in self._asked(sentence))]
        phrases = [phrase for sentence in sentences for phrase in self._phrases(sentence)]
        return Wording(name, list(dict.fromkeys(phrases)), list(dict.fromkeys(questions)))

    def _is_prose(self, prose: Sequence[str]) -> bool:
        """Return whether paragraphs are sentences: mostly letters, and words between which there are stop words."""
        text = " ".join(prose)
        signs = [sign for sign in text if not sign.isspace()]
        if not signs or sum(map(str.isalpha, signs)) < LETTERS * len(signs):
            return False
        if self.language == CHARACTERS:
            return len(signs) >= FEWEST_WORDS
        words = _WORD.findall(text.lower())
        few = STOPS if self.stop_words else 0
        return len(words) >= FEWEST_WORDS and sum(word in self.stop_words for word in words) >= few * len(words)

    def _part(self, part: str) -> str:
        """Return a part of a title as a phrase, without what only says where it stands."""
        plain = clean(re.sub(r"\(.*?\)|^\W*(?:PEP )?[\d.]+\W", "", part))
        words = _WORD.findall(plain.replace(_CUT, " "))
        return self._lowered(" ".join(words)) if 0 < len(words) <= 2 * MOST_WORDS else ""

    def _name(self, title: str) -> str:
        """Return what a passage is about: its section, with its page where the section alone says too little."""
        *pages, section = (self._part(part) for part in title.split(" > "))
        words = [word for word in section.lower().split() if word not in self.stop_words]
        if len(set(words) - GENERAL) >= 2 or not pages:
            return "" if set(words) <= GENERAL else section
        held = set(words)
        page = [word for word in pages[0].split() if word.lower() not in held]
        return " ".join([*page, section]) if page and len(page) + len(words) <= 2 * MOST_WORDS else ""

    def _lowered(self, text: str) -> str:
        """Write words in lower case that are capitals only as the first ones of a heading or a sentence."""
        if self.language == "german":
            return text
        words = text.split(" ")
        if self.language == ENGLISH and any(word[:1].islower() and len(word) > 3 for word in words[1:]):
            words[:1] = [words[0].lower() if words[0][1:].islower() else words[0]]  # others are names
            return " ".join(words)
        return " ".join(
            word.lower() if word[1:].islower() or word.lower() in self.stop_words else word for word in words
        )

    def _headed(self, title: str) -> Iterator[str]:
        """Ask by a title of two words or more."""
        section, name = self._part(title.rpartition(" > ")[2]), self._name(title)
        if self.language == ENGLISH and re.match(r"(?:how|what|why|when|where|which|can|does|is) ", section.lower()):
            yield section.lower()
        elif len(name.split()) > 1:
            yield name

    def _asked(self, sentence: str) -> Iterator[str]:
        """Turn a sentence that says what one can do, or what something is, into questions."""
        for pattern, questions in self.templates.patterns:
            found = pattern.search(sentence)
            if found is None:
                continue
            groups = found.groupdict()
            x = self._clause(
                groups["x"],
                is_name=questions[0].startswith(("what is", "what are", "was ", "qu", "qué")),
                fewest=1 if "s" in groups else 2,
            )
            if x is None:
                continue
            subject = groups.get("s")
            if subject is not None and _VAGUE & set(subject.lower().split()):
                continue
            for question in questions:
                yield question.format(**groups | {"x": x, "s": (subject or "").lower()})

    def _clause(self, text: str, *, is_name: bool, fewest: int = 2) -> str | None:
        clause = (_CUT_CLAUSE.split(text)[0] if self.language == ENGLISH else text).strip(" ,")
        words = clause.split()
        content = [word for word in words if word.lower() not in self.stop_words]
        lowered = {word.lower() for word in words}
        if not words or len(words) > MOST_CLAUSE or _CUT in clause or lowered & _VAGUE or not _plain(clause):
            return None
        if is_name:
            bad = (lowered & self.breaks) - {"of", "de"}
            return (
                None
                if bad or len(clause) < MOST_WORDS or not content or set(words) <= GENERAL
                else self._lowered(clause)
            )
        if (
            len(content) < fewest
            or words[0].lower() in _NO_HOW
            or words[-1].lower() in self.stop_words - {"up", "out", "off"}
        ):
            return None
        return " ".join(self.templates.words.get(word.lower(), word) for word in words)

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
            if run and len(run) <= MOST_WORDS and self._ends_with_noun(run):
                yield " ".join(run)
            run = []

    def _ends_with_noun(self, run: Sequence[str]) -> bool:
        last = run[-1].lower()
        if len(last) <= 2 or not last.isalpha():
            return False
        if self.language == "german":
            return run[-1][0].isupper()
        if self.language not in DETERMINERS:
            return True
        is_verb = last.endswith(("ed", "ing") if len(run) == 1 else "ed")
        return self.is_noun[last] > (0 if len(run) > 1 else 1) and not is_verb

    def _unspaced_wording(self, title: str, prose: Sequence[str]) -> Wording:
        runs = [run.strip() for part in prose for run in _CLAUSE.findall(part)]
        clauses = [run for run in runs if 4 <= len(run) <= 16 and re.search(f"[{UNSPACED}]{{2}}", run)]
        page, _, name = title.rpartition(" > ")
        headed = [f"{page.partition(' > ')[0]} {name}"] if page else []
        return Wording(name, clauses, [*headed, *clauses])

    def _code_wording(self, title: str, text: str) -> Wording | None:
        """Ask for functions and classes by their first sentence, and by the words of their names."""
        names, questions = list[str](), list[str]()
        for found in _NAMED.finditer(text):
            kind = "class" if found[1] in ("class", "struct", "interface", "trait", "enum") else "function"
            name = " ".join(part.lower() for part in _PARTS.findall(found[2]))
            is_test = name.startswith("test ")
            if (4 if is_test else 2) <= len(name.split()) <= 2 * MOST_WORDS and not re.search(r"\d", name):
                names.append(name)
                questions += [f"test for {name[5:]}"] if is_test else [f"where is the {name} {kind} defined"]
            questions += self._described(kind, _description(text, found))
        if not questions:
            return None
        words = [word.lower() for word in _PARTS.findall(re.split(r"[/.]", title.rpartition("/")[2] or title)[0])]
        return Wording(" ".join(words[:MOST_WORDS]), names, questions)

    def _described(self, kind: str, description: str) -> Iterator[str]:
        sentence = clean(description).strip()
        first = next((sentence[start:stop] for start, stop in split_sentences(sentence)), "").strip(" .:")
        first = _CUT_CLAUSE.split(f"{first} ")[0].strip(" .:,")
        words = first.split()
        if (
            not 3 <= len(words) <= MOST_CLAUSE
            or _CUT in first
            or not _plain(first)
            or set(first.lower().split()) & _VAGUE
        ):
            return
        verb, rest = words[0].lower(), " ".join(words[1:])
        if kind == "function" and words[1] != "and" and verb in _DOES:
            yield f"which function {_third_person(verb)} {rest}"
        elif kind == "class" and verb in ("a", "an", "the"):
            yield f"class for {rest}"


def is_list_of_changes(text: str) -> bool:
    """Return whether a text is a list of changes or a licence."""
    lines = [line for line in text.splitlines() if line.strip()]
    changes = sum(_CHANGE.match(line.strip()) is not None for line in lines)
    return changes >= max(1, LISTED * len(lines)) or len(_LICENCE.findall(text)) >= 2


def share_of_code(text: str) -> float:
    """Return the share of a text's lines that are code, outside of fences."""
    lines = [line for line in _FENCE.sub("", text).splitlines() if line.strip()]
    return sum(_CODE_LINE.match(line) is not None for line in lines) / max(1, len(lines))


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
        if not line.strip() or item is not None or _NO_PROSE.match(line):
            found.append([])
        if line.strip() and (item is not None or not _NO_PROSE.match(line)):
            found[-1].append(line[item.end() if item else 0 :].strip())
    return [clean(" ".join(lines)) for lines in found if lines]


def _description(text: str, found: re.Match[str]) -> str:
    """Return the docstring below a definition, or the comment above it."""
    below = _DOCSTRING.match(text, found.end()) or _DOCSTRING.match(text[found.end() : found.end() + 2000])
    if below is not None:
        return below[1]
    above = _COMMENT.search(text[max(0, found.start() - 2000) : found.start()])
    return " ".join(_COMMENT_SIGN.sub("", above[0]).split()) if above else ""


def _plain(text: str) -> bool:
    return re.fullmatch(r"[\w\s'\u2019.,-]+", text) is not None and "  " not in text


def _third_person(verb: str) -> str:
    if verb.endswith("s") and not verb.endswith("ss"):
        return verb
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else f"{verb}s"
