from graphrerank_documents.document import Document
from graphrerank_documents.formats.latex import NOT_CONVERTED, read_latex
from tests.support.documents import link_rows


def _read(text: str) -> Document:
    (document,) = read_latex(text.encode(), "paper.tex")
    return document


PAGE = r"""\documentclass{article}
\title{A \emph{Pump}} % \ref{no}
\begin{document}
\maketitle
\begin{abstract}
We pump 50\% more.
\end{abstract}
\section{Start \textbf{up}}\label{sec:start}
See Section~\ref{sec:limits}, \cref{eq:a,sec:start}, \cite{knuth} and
\href{http://example.org}{the site}. Caf\'e ``quoted'' with $p=\frac{a}{b}$. % \ref{hidden}

\begin{itemize}
\item one
\item two \eqref{eq:a}
\end{itemize}
\begin{equation}\label{eq:a}
a = b
\end{equation}
\begin{verbatim}
\ref{no} % kept
\end{verbatim}
\input{sub/limits}
\subsection*{Limits}
\label{sec:limits}
\begin{tabular}{ll}
Name & Value \\ \hline
a & \ref{sec:start} \\
c \& d & e \\
\end{tabular}
The end.
\end{document}
"""


def test_sections_labels_and_blocks() -> None:
    document = _read(PAGE)
    abstract, start, limits = document.sections
    assert document.title == "A Pump"
    assert (abstract.heading, abstract.blocks[0].text) == ("Abstract", "We pump 50% more.")
    assert (start.heading, start.line, start.end) == ("Start up", 8, 22)
    assert (start.labels, limits.labels) == (("sec:start", "eq:a"), ("sec:limits",))
    assert [(block.text, block.is_whole) for block in start.blocks] == [
        (
            "See Section sec:limits, eq:a,sec:start, [knuth] and the site. Café “quoted” with $p=\\frac{a}{b}$.",
            False,
        ),
        ("- one", False),
        ("- two (eq:a)", False),
        ("a = b", True),
        ("\\ref{no} % kept", True),
        ("sub/limits.tex", False),
    ]
    assert [(block.text, block.header) for block in limits.blocks] == [
        ("a | sec:start", "Name | Value"),
        ("c & d | e", "Name | Value"),
        ("The end.", ""),
    ]


def test_links_have_kinds_and_lines() -> None:
    assert link_rows(_read(PAGE)) == [
        ("label", "sec:limits", 9),
        ("label", "eq:a", 9),
        ("label", "sec:start", 9),
        ("label", "cite:knuth", 9),
        ("path", "http://example.org", 10),
        ("label", "eq:a", 14),
        ("path", "sub/limits.tex", 22),
        ("label", "sec:start", 27),
    ]


def test_deep_groups_and_what_is_no_latex_are_read() -> None:
    for text in (
        "{" * 30_000,
        "\\emph{" * 5000,
        "\\frac",
        "\\href{a}",
        "$" * 999,
        "\\section{" * 2000,
        "\\begin{a}" * 5000,
    ):
        assert _read(text).name == "paper.tex"


def test_a_paragraph_that_cannot_be_converted_is_named_in_the_report(monkeypatch):
    def fail(self: object, text: str) -> str:
        raise IndexError(text)

    assert _read(PAGE).damage == ()
    monkeypatch.setattr("pylatexenc.latex2text.LatexNodes2Text.latex_to_text", fail)
    document = _read(PAGE)
    assert document.damage == (NOT_CONVERTED,)
    assert "We pump 50\\% more." in document.sections[0].blocks[0].text + document.sections[1].blocks[0].text
