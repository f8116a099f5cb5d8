"""Find texts for which the time of a document reader grows faster than the length of the file.

python benchmarks/reader_growth.py [.adoc .rst ...]

The script reads repetitions of short tokens, alone, after an opening token, and between an opening and a closing token,
in processes with the limits of `graphrerank index`. A text that takes more than `--slow` seconds of CPU for 20,000
characters is read again at a quarter of the length. It is reported if four times the length takes more than `--growth`
times the CPU: 4 is linear, 16 is quadratic. The script prints one line per reported text and then exits with status 1.
"""

import argparse
import itertools
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence

from command_line import add_numbers

from graphrerank_documents.limited_processes import Handler, LimitedProcesses, Task
from graphrerank_documents.readers import READERS
from graphrerank_documents.reading import read_content, seconds_for

LENGTH = 20_000  # characters
MARKS = " \t\n!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
LETTERS = "aA1é"
TOKENS = {  # tokens by suffix, in addition to single characters and pairs of a mark and a letter
    ".md": "[a](b) [^1] ![a](b) **a **a* <b> <!-- $$ ``` ~~~ > -  1. | |- \\[ &# &a; [[a]] ::: {{a}} {% http://a a@b. #a",  # noqa: E501
    ".rst": ".. _a: b\n|.. _a:\n\n|.. a::\n\n|:a:`b` |`a`_ |``a |*a |[a]_ ||a| |__ |.. |:: |a\n- |a\n=\n|.. |a| image:: b\n",  # noqa: E501
    ".adoc": "[[a]] [#a] <<a>> {a} :a: b\n|link:a[b] |a:: b\n||===\n||a |----\n|....\n|include::a[]\n|= a\n|== a\n|* a\n|//a\n",  # noqa: E501
    ".html": "<a> </a> <div> <p> <table> <td> <!-- --> &a; <script> <li> <b> <a href=b> <h1>a</h1>",
    ".org": "* a\n|[[a][b]] |#+a: b\n|:a: |{{{a}}} |=a= |~a || a |\n|#+begin_src\n|#+end_src\n|[fn:a] |<<a>>",
    ".tex": "\\a{ \\a{b} \\begin{a} \\end{a} \\[ \\] $$ $ \\\\ \\section{a} \\href{a}{b} \\def\\a{b} % & {} \\cite{a} \\verb|a|",  # noqa: E501
    ".xml": "<a> </a> <a/> &a; <!-- --> <![CDATA[ ]]> <section> <title>a</title> <para>",
    ".wiki": "[[a]] [[a|b]] {{a}} {| |} |- <pre> <ref> </ref> <!-- --> == '' [//a b] |* a\n|== a ==\n|{|\n| a\n|}\n",
    ".ipynb": "[ { \" \\",
    ".json": "[ { [] {} {\"a\": \"a\", 1, \\\" \\u0000",
    ".jsonl": "{}\n|{\"a\": \"b\"}\n|[ |{ |{\"text\": \"a\"}\n|1\n",
    ".csv": "a, \" \"\" \"a\", a;b\n|a,b\n|\"\n",
    ".eml": "a: b\n|From: a\n|\n--a\n|=20 |=?a?q?b?= |>> |On a wrote:\n|Content-Type: multipart/mixed; boundary=a\n",
    ".mbox": "From a\n|From a\n\n|Subject: a\n|> a\n|Message-ID: <a>\n\n|References: <a> ",
    ".py": "def a():\n|class A:\n|( |[ |{ |'''|\"\"\" |a.b |a( |@a\n|# a\n|import a\n|a = |\\\n|f'{ |lambda: |if a:\n |::: |:a:`b` ",  # noqa: E501
    ".js": "( [ { ` ${ // /* */ /a/ function(){ =>  class a{ import a from 'b'; <a> a. a(",
    ".ts": "( [ { ` ${ // /* */ /a/ function(){ =>  class a{ a< <a>  : a | a. interface a{",
    ".go": "func a(){ ( [ { ` // /* */ type a struct{ import \"a\"\n a. a(",
    ".java": "class a{ ( [ { < // /* */ /** */ @a a. a( a<",
    ".rs": "fn a(){ ( [ { < // /* /// #[a] a:: r# a! ' |a|",
    ".c": "( [ { // /* */ #define a\n|#if a\n|* |a( |a-> |struct a{ |int |\\\n|\" |' |a, ",
    ".cpp": "( [ { < // /* */ template<a> a:: class a{ #if a\n|a< |a( |a& |[[a]] |R\"( ",
    ".txt": "a. a.b A. a\n|a - |- a\n|1. |== |http://a |a@b |[User] |12:00 a: b\n|a: b\n",
    ".css": "/* */ a{ } a; @a ",
    ".yml": "- a: |- |? |: |&a |*a |a: b\n||\n|# a\n",
}  # fmt: skip
OPENERS = {
    ".md": "# a|# |- |> |[|[a](|[a]: |![|<|<a |`|**a|| a |\n---\n|---\na: |a\n|1. |&|<!--|$|\\",
    ".rst": "a|.. |.. a:: |.. _|`|*|:a:`||| |- |a\n=|::\n\n  |.. _a: |[|\n   ",
    ".adoc": "= a|= |[|[[|<<|<<a,|link:|link:a[|a::|:a: |.|* |{|+|`|*|_||===\n|[cols=|footnote:[|http://a|a|image::",
    ".html": "<|<a |<a href=\"|<p>|<!--|<script>|<|&|<table>|<pre>|<title>|<b>a",
    ".org": "* a|* |[[|[[a][|#+|#+a: |:|:a: |*|=|~|<<|| |- |{{{",
    ".tex": "\\|\\a|\\a{|\\a[|$|\\[|\\begin{|\\begin{a}|%|{|\\section{|\\verb",
    ".eml": "Subject: |From: |Content-Type: |Content-Type: multipart/mixed; boundary=a\n\n--a\n|\n\n|\n\n> |To: |Date: |=?utf-8?q?",  # noqa: E501
    ".mbox": "From a\n|From a\nSubject: |From a\n\n|From a\nFrom: |From a\nReferences: |From a\nContent-Type: ",
    ".py": "\"\"\"|'''|# |a = |def a(|(|import |class A(|@|f'|def a():\n  \"\"\"",
    ".csv": "a,b\n|a|\"|,",
    ".json": "[|{\"|\"|{\"a\": ",
    ".jsonl": "{\"text\": \"|[|\"",
    ".txt": "a|- |1. |12:00 |[",
}  # fmt: skip
PLAIN_OPENERS = "a|<|(|\"|'|/*|//|#|{|<a "


def listed(text: str) -> list[str]:
    """Split a list at ``|`` if there is one, otherwise at spaces."""
    parts = re.split(r"(?<!\|)\|", text) if "|" in text and "\n" in text else text.split()
    return [part for part in parts if part]


def patterns(suffix: str) -> Iterator[tuple[str, str, str]]:
    """Yield the opening token, the repeated token and the closing token of each text of a format."""
    singles, known = [*MARKS, *LETTERS], listed(TOKENS.get(suffix, "( [ { // /* \" ' a("))
    openers = re.split(r"(?<!\|)\|", OPENERS.get(suffix, PLAIN_OPENERS))
    pairs = ("".join(pair) for pair in itertools.product([*MARKS, "a"], repeat=2))
    seen: set[tuple[str, str, str]] = set()
    for token in dict.fromkeys([*singles, *known, *(f"{token}\n" for token in known), *pairs]):
        yield "", token, ""
        if len(token) == 1 or token in known:
            for opener in openers:
                for end in ("", "a"):
                    pattern = (opener, token, end)
                    if pattern not in seen:
                        seen.add(pattern)
                        yield pattern


def content(pattern: Sequence[str], length: int) -> str:
    """Return the text of a file with about ``length`` characters."""
    opener, token, end = pattern
    return opener + token * (length // len(token)) + end


def reader(suffix: str) -> Handler:
    """Return a function for worker processes that reads a file and returns the seconds of CPU."""

    def seconds(text: str) -> bytes:
        start = time.process_time()
        read_content(text.encode(), f"a{suffix}")
        return json.dumps(time.process_time() - start).encode()

    seconds("a")  # imports
    return seconds


def main() -> int:
    """Print the texts whose time grows faster than the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "suffixes",
        nargs="*",
        default=[suffix for suffix in TOKENS if suffix in READERS],
        help="suffixes of the formats to test; all formats if none is given",
    )
    add_numbers(
        parser,
        slow=(0.25, "seconds of CPU from which a text is read again"),
        growth=(7.0, "ratio of CPU times above which a text is reported"),
        workers=(1, "number of processes"),
    )
    arguments = parser.parse_args()
    num_reported = 0
    for suffix in arguments.suffixes:
        tested = list(patterns(suffix))
        with LimitedProcesses("reader_growth:reader", suffix, workers=arguments.workers) as processes:

            def times(tested: Sequence[Sequence[str]], length: int) -> list[float]:
                tasks = (Task(content(pattern, length), seconds_for(0)) for pattern in tested)
                return [
                    float("inf") if reply.failure else float(json.loads(reply.content))
                    for reply in processes.call(tasks)
                ]

            long = times(tested, LENGTH)
            slow = [
                (pattern, seconds) for pattern, seconds in zip(tested, long, strict=True) if seconds > arguments.slow
            ]
            short = times([pattern for pattern, _ in slow], LENGTH // 4)
        print(f"{suffix}: {len(tested):,} patterns, {sum(min(each, 30.0) for each in long):,.0f} s of CPU", flush=True)
        for (pattern, seconds), less in sorted(zip(slow, short, strict=True), key=lambda row: -row[0][1]):
            if seconds > arguments.growth * less:
                num_reported += 1
                print(
                    f"  {pattern!r}: {seconds:.2f} s for {LENGTH:,} characters, {less:.3f} s for a fourth", flush=True
                )
    return min(num_reported, 1)


if __name__ == "__main__":
    sys.exit(main())
