"""Phrases and questions that a passage suggests, found without a language model.

Changelogs, licences, lists of names, navigation, tables of numbers, and code without a description suggest none.
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
MAX_SHORT_CLAUSE_WORDS, MAX_LONG_CLAUSE_WORDS = (
    10,
    26,
)  # Maximum number of words in a clause of short and long questions.
# Minimum number of words, or of characters in scripts without spaces, of a passage from which questions are drafted.
MIN_PASSAGE_WORDS = 8
# Minimum share of letters among the characters, and of stop words among the words, of prose. Tables, code and lists of
# names have smaller shares.
LETTERS, STOPS = 0.7, 0.2
LISTED, CODED = 0.3, 0.25  # Minimum share of the lines of a list of changes, and of code.

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

_CUT = "\0"  # Replacement of code and markup. Phrases do not extend across it.
_FENCE = re.compile(r"^ *(```+|~~~+).*?(?:^ *\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_MARKUP = (  # Patterns of markup, and their replacements.
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
# Number of a paragraph, or addressee of a message.
_ADDRESSED = re.compile(r"^(?:\(\d+\w?\) |@?[\w.-]+[:,] (?=\w+ \w))")
_QUESTION = re.compile(r"(?:[^\s\0?]+ ){4,20}[^\s\0?]+ ?\?+")


def _set(words: str, verbs: str = "") -> frozenset[str]:
    """Return the words, and the regular forms of the verbs."""
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


_ASKED = {  # Placeholders in patterns, and their regular expressions.
    "<CLAUSE>": r"(?P<clause>[^\W\d_]+ [^.;:!?()\0\"\u201c\u201d]{6,})",
    "<NAME>": r"(?P<name>[^\W\d_][\w'\u2019-]*(?: [\w'\u2019-]+){0,3})",
    "<INFINITIVE>": r"(?:aber |auch |dann |nun |jetzt |einfach )*(?P<clause>[^,.;:!?()\0]{8,}?(?:en|ern|eln))[.,:]",
    "<CHARACTERS>": r"[^,\u3002\uff0c\uff1b\uff1a\uff01\uff1f\uff08\uff09\u3001;:!?()\s\0]",
}


class Templates(BaseModel):
    """Templates of questions in a language, and word lists for finding phrases.

    ``drafted_wording.yaml`` explains each field.

    Attributes:
        sentences: Start, verbs and ends of sentences that state what something does, with the questions that they
            answer.
        patterns: Regular expressions of sentences, and the questions that they answer, separated by ``|``.
        joined: Templates that combine phrases of two passages.
        hinted: Templates that combine the name of a passage and a phrase of another.
        qualified: Template that adds the name of the passage to a question.
        both: Template that combines two questions.
        situated: Templates of a question with its context.
        listed: Templates of questions about all passages that mention a phrase.
        linked: Templates of questions about all passages linked with a passage.
        columns: Templates of questions about a column of a table.
        headed: Templates that combine the name of a page and a section.
        changed: Replacements of words in clauses.
        determiners: Words before nouns, separated by spaces.
        breaks: Words that end a phrase, separated by spaces.
        verbs: Verbs that end a phrase, separated by spaces.
        synonyms: Groups of synonyms, separated by spaces, with ``|`` between synonyms and ``_`` for spaces.
    """

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
        """Compiled patterns of sentences, with the questions that they answer."""
        patterns = list(self.patterns)
        if self.sentences:
            start = rf"^(?P<subject>{self.sentences['start']} [\w' -]{{3,45}}?) (?P<verb>{self.sentences['verbs']})"
            start += r" (?P<clause>[^,.;:!?()\0\"]{8,90}?)"
            patterns = [*((start + end, questions) for end, questions in self.sentences["ends"].items()), *patterns]
        for name, pattern in _ASKED.items():
            patterns = [(sentence.replace(name, pattern), questions) for sentence, questions in patterns]
        return [(re.compile(sentence), questions.split("|")) for sentence, questions in patterns]


@cache
def templates_of(language: str) -> Templates:
    """Return the templates of a language.

    Args:
        language: Name of the language.

    Returns:
        Templates in ``drafted_wording.yaml``. For other languages, the defaults, which only concatenate phrases.
    """
    text = files("graphrerank.data").joinpath("drafted_wording.yaml").read_text(encoding="utf-8")
    return Templates(**yaml.safe_load(text).get(language, {}))


@dataclass(frozen=True)
class Wording:
    """Phrases and questions that a passage suggests.

    Attributes:
        name: Name of the passage's topic. Empty if there is none.
        phrases: Phrases in the order of the text.
        questions: Questions that the passage answers.
        long: Longer questions that the passage answers.
        asked: Questions that the passage itself asks.
        is_only: Whether the passage defines names that no other passage defines.
    """

    name: str
    phrases: Sequence[str]
    questions: Sequence[str]
    long: Sequence[str] = ()
    asked: Sequence[str] = ()
    is_only: bool = False


class QuestionWriter:
    """Generator of phrases and questions for passages in one language.

    Args:
        language: Name of the language.
        texts: Texts of the corpus, from which nouns and frequent words are learned.
        is_strict: Whether passages that nobody asks about are skipped. If False, every passage suggests its words.
    """

    def __init__(self, language: str, texts: Sequence[str] = (), *, is_strict: bool = True) -> None:
        self.language, self.is_strict = language, is_strict
        self.templates = templates_of(language)
        self.stop_words = STOP_WORDS if language in (ENGLISH, PLAIN) else language_of(language).stop_words
        word_lists = templates_of(ENGLISH) if language == PLAIN else self.templates
        self.breaks = self.stop_words | _set(word_lists.breaks, word_lists.verbs)
        if language in (ENGLISH, PLAIN):
            self.breaks |= set(STOPWORDS_EN_PLUS)
        self.determiners = _set(self.templates.determiners)
        # Evidence that a word is a noun (it ends a phrase after a determiner), minus evidence that it is a verb.
        self.is_noun = Counter[str]()
        for text in texts if self.determiners and is_strict else ():
            self._count_nouns(_TOKEN.findall(text.lower()))
        self.defined = Counter(match[2] for text in texts for match in _NAMED.finditer(text))
        self.common = self.stop_words  # Words that are never suggested.
        if not is_strict:
            frequency = Counter(word for text in texts for word in set(_WORD.findall(text.lower())))
            self.common |= {word for word, count in frequency.items() if count > max(2, len(texts) / 2)}

    def _count_nouns(self, tokens: Sequence[str]) -> None:
        """Count words that end a run of content words after a determiner, unless a determiner follows."""
        start = 0
        for index, token in enumerate([*tokens, "."]):
            if token[0].isalnum() and token not in self.breaks:
                continue
            if index > start and start:
                before, last = tokens[start - 1], tokens[index - 1]
                self.is_noun.subtract(tokens[start : index - 1])
                if token in self.determiners or (before in _BEFORE_VERBS and index == start + 1):
                    self.is_noun[last] -= 2
                elif before in self.determiners:
                    self.is_noun[last] += 2
            start = index + 1

    def wording(self, title: str, text: str, path: str = "") -> Wording | None:
        """Return the phrases and questions that a passage suggests.

        Args:
            title: Title of the passage. Parts are separated by ``" > "``.
            text: Text of the passage without the title.
            path: Id of the passage, which may be a path.

        Returns:
            Phrases and questions. None if nobody would ask about the passage.
        """
        if not self.is_strict:
            clauses = (_WORD.findall(clause) for clause in re.split(r"[,.;:\n(){}\[\]|]", text or title))
            contents = ([word for word in words if word[1:] and word.lower() not in self.common] for words in clauses)
            unique = dict.fromkeys(" ".join(words[i : i + 4]) for words in contents for i in range(0, len(words), 4))
            name = self._part(title) if text else ""
            name = "" if name.lower() in self.stop_words else name
            columns = [phrase for phrase in unique if phrase.lower() not in name] if name else []
            questions = [form.format(column, name) for column in columns for form in self.templates.columns]
            return Wording(name, list(unique), questions)
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
        spans = ((paragraph, span) for paragraph in prose for span in split_sentences(paragraph, self.language))
        sentences = [_ADDRESSED.sub("", paragraph[start:stop]) for paragraph, (start, stop) in spans]
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
        phrases, questions, long = (list(dict.fromkeys(texts)) for texts in (phrases, questions, long))
        return Wording(name, phrases, questions, long, asked)

    def _is_prose(self, text: str) -> bool:
        """Return whether a text consists of sentences: mostly letters, with stop words between the other words."""
        signs = "".join(text.split())
        if not signs or sum(map(str.isalpha, signs)) < LETTERS * len(signs):
            return False
        if self.language == CHARACTERS:
            return len(signs) >= MIN_PASSAGE_WORDS
        words = _WORD.findall(text.lower())
        few = STOPS if self.stop_words else 0
        return len(words) >= MIN_PASSAGE_WORDS and sum(word in self.stop_words for word in words) >= few * len(words)

    def _part(self, part: str) -> str:
        """Return a part of a title as a phrase, without numbers and parentheses, or an empty string."""
        words = _WORD.findall(clean(re.sub(r"\(.*?\)|^\W*(?:PEP )?[\d.]+\W", "", part)).replace(_CUT, " "))
        is_number = 2 * sum(any(map(str.isdigit, word)) for word in words) > len(words)
        return "" if is_number or len(words) > 2 * MAX_PHRASE_WORDS else self._lowered(" ".join(words))

    def _name(self, title: str) -> str:
        """Return the topic of a passage: its section, with its page if the section alone is too general."""
        *pages, section = (self._part(part) for part in title.split(" > "))
        words = {word for word in section.lower().split() if word not in self.stop_words}
        if len(words - _GENERAL) >= 2 or not pages:
            return "" if words <= _GENERAL else section
        page = [word for word in pages[0].split() if word.lower() not in words]
        page = page[page[:1] != [] and page[0].lower() in self.stop_words :]
        return " ".join([*page, section]) if section and page and len(page) + len(words) <= 2 * MAX_PHRASE_WORDS else ""

    def _lowered(self, text: str) -> str:
        """Convert words to lower case that are capitalised only because of their position in a heading or sentence."""
        words = text.split(" ")
        is_sentence = self.language == ENGLISH and any(word[:1].islower() and len(word) > 3 for word in words[1:])
        for index, word in enumerate(words[:1] if is_sentence else words if self.language != "german" else ()):
            if word[1:].islower() or word.lower() in self.stop_words:
                words[index] = word.lower()
        return " ".join(words)

    def _asked(self, sentence: str, most: int = MAX_SHORT_CLAUSE_WORDS) -> Iterator[str]:
        """Yield the questions that a sentence answers, with at most ``most`` words of the sentence."""
        for pattern, questions in self.templates.answered:
            if match := pattern.search(sentence):
                groups = match.groupdict()
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
        is_general = set(words) & (self.breaks - {"of", "de"} | _VAGUE) or set(words) <= _GENERAL
        return "" if is_general or len(name) < MAX_PHRASE_WORDS or not _PLAIN.fullmatch(name) else self._lowered(name)

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
        """Yield the noun phrases of a sentence: runs of content words that end with a noun."""
        run: list[str] = []
        for number, token in enumerate([*_TOKEN.findall(sentence), _CUT]):
            word = token.lower()
            is_word = token[0].isalnum() and word not in self.breaks and len(word) > 1 and word[-2:] != "ly"
            # Exclude the capitalised first word, and verbs, whose endings differ from those of adjectives.
            if self.language == "german":
                is_word = is_word and number > 0 and (not token.islower() or word[-1] in "enrsm")
            if is_word:
                run.append(self._lowered(token) if number == 0 else token)
                continue
            if word in self.determiners and word != "of":
                run = run[:-1]  # The word before a determiner is a verb.
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
        runs = [run.strip() for paragraph in prose for run in _UNSPACED_CLAUSE.findall(paragraph)]
        clauses = [run for run in runs if 2 <= len(run) <= 16 and _CLAUSE.fullmatch(run)]
        page, _, section = re.sub("[`*]", "", title).rpartition(" > ")
        name = page.partition(" > ")[0] or section
        is_headed = page and section not in _GENERAL
        headed = [form.format(name, section) for form in self.templates.headed] if is_headed else []
        spans = ((paragraph, span) for paragraph in prose for span in split_sentences(paragraph, self.language))
        sentences = (paragraph[start:stop] for paragraph, (start, stop) in spans)
        asked = [question for sentence in sentences for question in self._asked(sentence)]
        asked = [question if name in question else f"{name}{question}" for question in asked]
        return Wording(name, clauses, [*headed, *asked])

    def _code_wording(self, title: str, text: str) -> Wording | None:
        """Suggest questions about functions and classes, from their first sentence and the words of their names."""
        names, questions, is_only = list[str](), list[str](), True
        for match in _NAMED.finditer(text):
            kind = "class" if match[1] in ("class", "struct", "interface", "trait", "enum") else "function"
            name = " ".join(word.lower() for word in _PARTS.findall(match[2]))
            is_test = name.startswith("test ")
            if (4 if is_test else 2) <= len(name.split()) <= 2 * MAX_PHRASE_WORDS and not re.search(r"\d", name):
                names.append(name)
                is_only &= self.defined[match[2]] <= 1
                forms = (f"where is the {name} {kind} defined", f"where is {match[2]} defined", f"{match[2]} {kind}")
                questions += [f"test for {name[5:]}"] if is_test else forms
            if described := _described(kind, _description(text, match)):
                questions.append(described)
        module = re.sub(rf"{_CODE_FILE.pattern}.*|[\s#>].*", "", title)
        words = [word.lower() for word in _PARTS.findall(re.split(r"[/.]|::", module)[-1])]
        name = names[0] if len(names) == 1 else " ".join(words[:MAX_PHRASE_WORDS])
        return Wording(name, names, questions, is_only=is_only) if questions else None


def clean(text: str) -> str:
    """Remove markup, links, addresses, paths and code from a text.

    Args:
        text: Text with markup.

    Returns:
        Plain text, with a null character in place of removed code.
    """
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return text


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs and list items of a passage's prose.

    Args:
        text: Text of the passage.

    Returns:
        Clean paragraphs (:func:`clean`), each in one line.
    """
    blocks: list[list[str]] = [[]]
    for line in _FENCE.sub("\n\n", text).splitlines():
        item = _ITEM.match(line)
        is_prose = line.strip() and (item is not None or not _NO_PROSE.match(line))
        if item is not None or not is_prose:
            blocks.append([])
        if is_prose:
            blocks[-1].append(line[item.end() if item else 0 :].strip())
    return [clean(" ".join(lines)) for lines in blocks if lines]


def _share_of_lines(pattern: re.Pattern[str], text: str) -> float:
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(pattern.match(line) is not None for line in lines) / max(1, len(lines))


def _description(text: str, match: re.Match[str]) -> str:
    """Return the docstring below a definition, or the comment above it."""
    if below := _DOCSTRING.match(text, match.end(), match.end() + 2000):
        return below[1]
    above = _COMMENT.search(text[max(0, match.start() - 2000) : match.start()])
    return " ".join(_COMMENT_SIGN.sub("", above[0]).split()) if above else ""


def _described(kind: str, description: str) -> str:
    """Return the question that the first sentence of a definition answers, or an empty string."""
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
