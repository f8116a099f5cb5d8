"""Wording of drafted questions: phrases and questions that a passage itself suggests, without a language model.

Changelogs, licences, lists of names, navigation, tables of numbers and code without a description suggest none.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bm25s.stopwords import STOPWORDS_EN_PLUS

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
_CUT_CLAUSE = re.compile(
    r",| - | (?:because|so that|which|if|when|but|while|as well|unless|until|though|since|where|that|and then"
    r"|rather than|instead of|(?:by )?using|as follows|like (?:so|this)) "
)
_PLAIN = re.compile(r"[\w'\u2019.,-]+(?: [\w'\u2019.,-]+)*")


def _set(words: str, verbs: str = "") -> frozenset[str]:
    """Return words, and the regular forms of verbs."""
    stems = {verb: verb.removesuffix("e") for verb in verbs.split()}
    forms = (f for verb, stem in stems.items() for f in (verb, f"{verb}s", f"{verb}es", f"{stem}ed", f"{stem}ing"))
    return frozenset([*words.split(), *forms])


_VAGUE = _set("it its this that these those they them he she his her him such there here above below so thing things")
_NO_HOW = _set(
    "be not have see find refer read notice think expect imagine note do say know assume understand need want get also"
    " only never always go look check rely learn consider choose let simply come"
)
_GENERAL = _set(
    "overview introduction example examples usage motivation rationale abstract syntax notes note summary background"
    " specification methods functions description details basics general options parameters arguments returns api"
    " reference configuration implementation discussion conclusion appendix recap einführung beispiel beispiele"
    " zusammenfassung übersicht hinweise resumen introducción ejemplo ejemplos recapitulación exemple exemples"
)
_BEFORE_VERBS = _set("to can will must should could would may might not it they you we which that does did i cannot")


@dataclass(frozen=True)
class _Templates:
    """Questions of a language, and the words that its noun phrases are found by."""

    patterns: Sequence[tuple[str, str]] = ()  # of sentences, the group `name` or `clause` is asked for by: a|b
    joined: Sequence[str] = ("{} {}",)  # of phrases of two passages
    hinted: Sequence[str] = ("{} {}",)  # of the name of a passage, and words of another
    changed: Mapping[str, str] = field(default_factory=dict)  # words that a question changes
    determiners: frozenset[str] = frozenset()  # without which all words are nouns
    breaks: frozenset[str] = frozenset()  # words that no noun phrase has, with stop words


_REST = r"(?P<clause>[a-z]+ [^.;:!?()\0\"\u201c\u201d]{6,})"
_NAME = r"(?P<name>[^\W\d_][\w'\u2019-]*(?: [\w'\u2019-]+){0,3})"
_INFINITIVE = r"(?:auch |dann |nun |jetzt |einfach )*(?P<clause>[^,.;:!?()\0]{8,}?(?:en|ern|eln))[.,:]"
TEMPLATES = {
    ENGLISH: _Templates(
        (
            (r"\b(?:(?:[Yy]ou|[Ww]e|[Uu]sers|[Dd]evelopers) (?:can|may|could|have to|need to|must|should|want to)"
             r"|(?:allow|enable|let|help)s? (?:you|users)(?: to)?) (?:also |then |now |simply |just |easily )*"
             rf"{_REST}", "how do I {}|how to {}|how can I {}"),
            (rf"^(?:In order )?[Tt]o {_REST}", "how do I {}|how to {}"),
            (rf"^(?:An? )?{_NAME} is (?:an?|the|one of)\b", "what is {}|what is {} used for"),
            (r"\b(?:[Ii]f|[Ww]hen) you (?P<clause>(?!are|have|want|need|would|prefer|like|re)[a-z]+ [^,.;:!?()\0]"
             r"{6,60}),", "what happens if I {}|what happens when I {}"),
        ),
        ("{} with {}", "{} and {}", "{} {}", "how do I use {} with {}", "how does {} work with {}"),
        ("{0} {1}", "{0} with {1}", "{0} and {1}", "{1} in {0}"),
        {"your": "my", "you": "I", "yours": "mine", "yourself": "myself", "our": "my", "we": "I", "their": "the"},
        _set("the a an its your our my their his her each this these those any no every some another of"),
        STOP_WORDS.union(STOPWORDS_EN_PLUS) | _set(
            "used using got ran running made taken given found kept known shown written said seen tries applies"
            " applied relies specifies specified due particular whether entire special like even still already"
            " however thus therefore instead rather quite often always never sometimes later first second last next"
            " previous another many much several one two three new different able possible available may might must"
            " could would cannot can't etc e.g i.e eg ie example within without via per upon though although either"
            " neither none something anything everything nothing someone based depending please sure well good better"
            " best let's that's there's i'm we're they're since",
            "use add allow provide contain call return need want work require support include create define look"
            " help consider follow pass change happen seem think start end apply implement exist refer rely focus"
            " keep mean show read write run get set see take give go come let find make put say try know become"
            " specify",
        ),
    ),
    "german": _Templates(
        (
            (r"\b(?:(?:[Mm]an|[Dd]u|[Ww]ir) (?:kannst|kann|können|müssen|sollten)|Sie (?:können|müssen|sollten)"
             rf"|(?:können|müssen|sollten) Sie) {_INFINITIVE}", "wie kann ich {}"),
            (rf"^(?:Ein |Eine )?{_NAME} ist (?:ein|eine|der|die|das)\b", "was ist {}"),
        ),
        ("{} mit {}", "{} und {}", "{} {}"),
        ("{0} {1}", "{1} {0}", "{0} und {1}"),
        {"ihr": "mein", "ihre": "meine", "ihren": "meinen", "ihrem": "meinem", "ihrer": "meiner", "ihres": "meines"},
        breaks=_set(
            "meisten gleiche gleichen verschiedene verschiedenen bestimmte bestimmten weitere weiteren andere"
            " anderen viele vielen eigene eigenen einfach einfache einfacher einfaches bessere besseren wirklich genau"
            " bereits möglicherweise weise teil fall fälle neben zeit beispiel beispiele sache dinge wert"
        ),
    ),
    "french": _Templates(
        (
            (rf"(?:\b(?:[Vv]ous|[Oo]n) (?:pouvez|peut|devez|doit)|^Pour) {_REST}", "comment {}"),
            (rf"^(?:Une? |Le |La )?{_NAME} est (?:une?|le|la)\b", "qu'est-ce que {}"),
        ),
        ("{} et {}", "{} avec {}", "{} {}", "comment utiliser {} avec {}"),
        ("{} {}", "{1} de {0}", "{0} et {1}"),
        determiners=_set("le la les un une des du de l d ce cette ces son sa ses votre vos mon ma mes"),
    ),
    "spanish": _Templates(
        (
            (rf"(?:\b(?:[Pp]uedes?|[Pp]ueden|[Pp]odemos|[Dd]ebes?)|^Para) {_REST}", "cómo {}|cómo puedo {}"),
            (rf"^(?:Una? |El |La )?{_NAME} es (?:una?|el|la)\b", "qué es {}"),
        ),
        ("{} y {}", "{} con {}", "{} {}", "cómo usar {} con {}"),
        ("{} {}", "{1} de {0}", "{0} y {1}"),
        determiners=_set("el la los las un una unos unas del de su sus este esta mi mis"),
    ),
}  # fmt: skip


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
        self.templates = TEMPLATES.get(language, _Templates()) if is_strict else _Templates()
        self.stop_words = STOP_WORDS if language in (ENGLISH, PLAIN) else language_of(language).stop_words
        self.breaks = self.stop_words | (TEMPLATES[ENGLISH] if language == PLAIN else self.templates).breaks
        self.determiners = self.templates.determiners
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
                if token in self.determiners or (before in _BEFORE_VERBS and place == start + 1):
                    self.is_noun[last] -= 2
                elif before in self.determiners:
                    self.is_noun[last] += 2
            start = place + 1

    def wording(self, title: str, text: str, path: str = "") -> Wording | None:
        """Return what a passage suggests; None where nobody would ask for it."""
        if not self.is_strict:
            words = [word for word in _WORD.findall(text or title) if word[1:] and word.lower() not in self.stop_words]
            return Wording("", [" ".join(words[start : start + 3]) for start in range(0, len(words), 3)], [])
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
            return _unspaced_wording(title, prose)
        sentences = [part[start:stop] for part in prose for start, stop in split_sentences(part, self.language)]
        name, section = self._name(title), self._part(title.rpartition(" > ")[2]).lower()
        questions = [name] if " " in name else []
        if self.language == ENGLISH and re.match(r"(?:how|what|why|when|where|which|can|does|is) ", section):
            questions = [section]
        questions += [question for sentence in sentences for question in self._asked(sentence)]
        phrases = [phrase for sentence in sentences for phrase in self._phrases(sentence)]
        return Wording(name, list(dict.fromkeys(phrases)), list(dict.fromkeys(questions)))

    def _is_prose(self, text: str) -> bool:
        """Return whether a text is sentences: mostly letters, and words between which there are stop words."""
        signs = "".join(text.split())
        if not signs or sum(map(str.isalpha, signs)) < LETTERS * len(signs):
            return False
        if self.language == CHARACTERS:
            return len(signs) >= FEWEST_WORDS
        words = _WORD.findall(text.lower())
        few = STOPS if self.stop_words else 0
        return len(words) >= FEWEST_WORDS and sum(word in self.stop_words for word in words) >= few * len(words)

    def _part(self, part: str) -> str:
        """Return a part of a title as a phrase, without what only says where it stands."""
        words = _WORD.findall(clean(re.sub(r"\(.*?\)|^\W*(?:PEP )?[\d.]+\W", "", part)).replace(_CUT, " "))
        return self._lowered(" ".join(words)) if len(words) <= 2 * MOST_WORDS else ""

    def _name(self, title: str) -> str:
        """Return what a passage is about: its section, with its page where the section alone says too little."""
        *pages, section = (self._part(part) for part in title.split(" > "))
        words = {word for word in section.lower().split() if word not in self.stop_words}
        if len(words - _GENERAL) >= 2 or not pages:
            return "" if words <= _GENERAL else section
        page = [word for word in pages[0].split() if word.lower() not in words]
        return " ".join([*page, section]) if page and len(page) + len(words) <= 2 * MOST_WORDS else ""

    def _lowered(self, text: str) -> str:
        """Write words in lower case that are capitals only as the first ones of a heading or a sentence."""
        words = text.split(" ")
        is_sentence = self.language == ENGLISH and any(word[:1].islower() and len(word) > 3 for word in words[1:])
        for place, word in enumerate(words[:1] if is_sentence else words if self.language != "german" else ()):
            if word[1:].islower() or word.lower() in self.stop_words:
                words[place] = word.lower()
        return " ".join(words)

    def _asked(self, sentence: str) -> Iterator[str]:
        """Turn a sentence that says what one can do, or what something is, into questions."""
        for pattern, questions in self.templates.patterns:
            if found := re.search(pattern, sentence):
                ask = self._asked_name if found.lastgroup == "name" else self._asked_clause
                if asked := ask(found[found.lastgroup or 0]):
                    yield from (question.format(asked) for question in questions.split("|"))

    def _asked_name(self, name: str) -> str:
        words = name.lower().split()
        is_known = set(words) & (self.breaks - {"of", "de"} | _VAGUE) or set(words) <= _GENERAL
        return "" if is_known or len(name) < MOST_WORDS or not _PLAIN.fullmatch(name) else self._lowered(name)

    def _asked_clause(self, text: str) -> str:
        clause = (_CUT_CLAUSE.split(f"{text} ")[0] if self.language == ENGLISH else text).strip(" ,")
        words = clause.lower().split()
        if not words or len(words) > MOST_CLAUSE or _VAGUE & set(words) or not _PLAIN.fullmatch(clause):
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
            if run and len(run) <= MOST_WORDS and self._ends_with_noun(run):
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

    def _code_wording(self, title: str, text: str) -> Wording | None:
        """Ask for functions and classes by their first sentence, and by the words of their names."""
        names, questions = list[str](), list[str]()
        for found in _NAMED.finditer(text):
            kind = "class" if found[1] in ("class", "struct", "interface", "trait", "enum") else "function"
            name = " ".join(part.lower() for part in _PARTS.findall(found[2]))
            is_test = name.startswith("test ")
            if (4 if is_test else 2) <= len(name.split()) <= 2 * MOST_WORDS and not re.search(r"\d", name):
                names.append(name)
                questions.append(f"test for {name[5:]}" if is_test else f"where is the {name} {kind} defined")
            if described := _described(kind, _description(text, found)):
                questions.append(described)
        module = re.sub(rf"{_CODE_FILE.pattern}.*|[\s#>].*", "", title)
        words = [word.lower() for word in _PARTS.findall(re.split(r"[/.]|::", module)[-1])]
        return Wording(" ".join(words[:MOST_WORDS]), names, questions) if questions else None


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


def _unspaced_wording(title: str, prose: Sequence[str]) -> Wording:
    runs = [run.strip() for part in prose for run in _UNSPACED_CLAUSE.findall(part)]
    clauses = [run for run in runs if 4 <= len(run) <= 16 and re.search(f"[{UNSPACED}]{{2}}", run)]
    page, _, name = title.rpartition(" > ")
    headed = [f"{page.partition(' > ')[0]} {name}"] if page else []
    return Wording(name, clauses, [*headed, *clauses])


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
    if not 3 <= len(words) <= MOST_CLAUSE or not _PLAIN.fullmatch(first) or _VAGUE & set(words):
        return ""
    if kind == "class":
        return f"class for {first.partition(' ')[2]}" if words[0] in ("a", "an", "the") else ""
    return f"which function {_third_person(words[0])} {does[2]}" if (does := _DOES.fullmatch(first)) else ""


def _third_person(verb: str) -> str:
    if re.search("[^s]s$", verb):
        return verb
    return re.sub("(?<=[^aeiou])y$", "ie", verb) + ("es" if re.search("(?:[sxz]|[cs]h|o)$", verb) else "s")
