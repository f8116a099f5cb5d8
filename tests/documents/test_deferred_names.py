"""Names that other documents of the folder define: macros of LaTeX, and users of Slack."""

import json
from pathlib import Path

import pytest

from graphrerank_documents.deferred_names import NameResolver, definition_of, mark
from graphrerank_documents.index_folder import index_folder
from tests.support.files import write_files

pytestmark = pytest.mark.usefixtures("parses_here")


def texts(folder: Path, files: dict[str, str], out: Path) -> dict[str, str]:
    index_folder(write_files(folder, files), out)
    rows = [json.loads(line) for line in (out / "corpus.jsonl").read_text().splitlines()]
    return {row["_id"]: f"{row['title']} | {row['text']}" for row in rows}


MAIN = r"""\documentclass{article}
\title{Pump theory of \shop}
\newcommand{\pump}{centrifugal pump}
\newcommand*\unit[2]{#1 #2}
\newcommand{\size}[2][large]{a #1 \textbf{#2}}
\def\shop{ACME \kind}
\def\kind{Works}
\newcommand{\todo}[1]{}
\begin{document}
\section{Introduction of \pump}
The \pump{} of \shop\ runs at \unit{6}{bar}, \size{\pump}. \todo{Write.} $\pump^2$ \noindent \foo{bar} \acmeName.

\input{parts/model}
\end{document}
"""


def test_macros_of_the_file_and_of_files_that_input_it(tmp_path: Path) -> None:
    files = {
        "main.tex": MAIN,
        "parts/model.tex": "\\section{Model}\nA \\pump{} moves water, and \\seal{} shuts.\n",
        "alone.tex": "A \\pump{} and \\unit{7}{m}.\n",
    }
    rows = texts(tmp_path / "docs", files, tmp_path / "out")
    assert rows["main.tex#introduction-of-centrifugal-pump"] == (
        "Pump theory of ACME Works > Introduction of centrifugal pump | The centrifugal pump of ACME Works runs at 6 "
        "bar, a large centrifugal pump. $\\pump^2$ bar acmeName.\n\nparts/model.tex"
    )
    assert rows["parts/model.tex#model"] == "Model | A centrifugal pump moves water, and seal shuts."
    assert rows["alone.tex"] == "alone | A pump and 7 m."


def test_macros_of_a_preamble_and_the_nearest_definition(tmp_path: Path) -> None:
    files = {
        "macros.tex": "\\newcommand{\\pump}{red pump}\n\\newcommand{\\valve}{red valve}\n",
        "book.tex": "\\input{macros}\\begin{document}\n\\input{one}\n\\input{other/two}\n\\end{document}\n",
        "one.tex": "\\newcommand{\\pump}{own pump}\nThe \\pump{} and the \\valve{}.\n",
        "other/two.tex": "The \\pump{} and the \\valve{}.\n",
        "other/main.tex": "\\newcommand{\\valve}{blue valve}\\begin{document}\\input{two}\\end{document}\n",
    }
    rows = texts(tmp_path / "docs", files, tmp_path / "out")
    assert rows["one.tex"].endswith("The own pump and the red valve.")
    assert rows["other/two.tex"].endswith("The red pump and the blue valve.")


def test_an_update_equals_a_new_folder(tmp_path: Path) -> None:
    files = {"main.tex": MAIN, "parts/model.tex": "A \\pump{} moves water.\n"}
    texts(tmp_path / "docs", files, tmp_path / "out")
    changed = {"main.tex": MAIN.replace("centrifugal", "gear")}
    updated = texts(tmp_path / "docs", changed, tmp_path / "out")
    assert updated["parts/model.tex"] == "model | A gear pump moves water."
    assert updated == texts(tmp_path / "docs", {}, tmp_path / "new")


def test_users_of_slack_have_their_names(tmp_path: Path) -> None:
    users = [
        {"id": "U1AA", "name": "ann", "profile": {"real_name": "Ann Lee", "email": "a@b"}},
        {"id": "U2BB", "name": "bob", "profile": {"real_name": "", "display_name": ""}},
    ]
    day = [
        {"type": "message", "ts": "1700000000.1", "user": "U1AA", "text": "Ask <@U2BB> or <@U9ZZ>."},
        {"type": "message", "ts": "1700000060.1", "user": "U2BB", "text": "Thanks <@U1AA|annie>"},
    ]
    files = {"users.json": json.dumps(users), "general/2023-11-14.json": json.dumps(day)}
    rows = texts(tmp_path / "docs", files, tmp_path / "out")
    (chat,) = [text for name, text in rows.items() if name.startswith("general/")]
    assert chat.endswith("| Ann Lee: Ask @bob or @U9ZZ.\nbob: Thanks annie")


@pytest.mark.parametrize("depth", [3, 30])
def test_definitions_in_definitions_are_bounded(depth: int) -> None:
    definitions = {f"macro:a{i}": definition_of(mark(f"macro:a{i + 1}") * 10) for i in range(depth)} | {
        "macro:a30": definition_of("x" * 100)
    }
    text = NameResolver(definitions.get, 10_000).text(mark("macro:a0"))
    assert len(text) < 60_000
    assert "\U0010f8f0" not in text


def test_a_circle_of_definitions_ends() -> None:
    resolver = NameResolver(
        {"macro:a": definition_of(mark("macro:b")), "macro:b": definition_of(f"x{mark('macro:a')}")}.get
    )
    assert set(resolver.text(mark("macro:a"))) == {"x", "a"}


def test_marks_in_a_file_are_no_way_to_other_texts(tmp_path: Path) -> None:
    files = {"a.md": f"# A\n\nx {mark('user:U1')} y \U0010f8f0 z\n"}
    assert texts(tmp_path / "docs", files, tmp_path / "out")["a.md#a"] == "A | x U1 y z"
