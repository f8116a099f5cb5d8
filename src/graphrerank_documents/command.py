"""Command ``graphrerank index``, which converts a folder of documents into a data set folder."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphrerank.installation.extras import require_extra
from graphrerank.utils.checks import check_not_negative
from graphrerank.utils.safe_loading import printable

if TYPE_CHECKING:
    from graphrerank_documents.selection import FileSelection

USAGE = "DOCUMENTS --out F"
SUMMARY = "turn a folder of documents into a data set folder"
MAX_WORDS = 200
#: Default number of drafted questions, as in the data sets on which `base` was trained.
QUESTIONS = 1500
ENDPOINT = "http://localhost:8000/v1"


def parser() -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = ArgumentParser(
        "graphrerank index", description="Convert a folder of documents into a data set folder, or update one."
    )
    parser.add_argument("source", type=Path, help="folder with documents and code, including its subfolders")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder to write; an existing data set or corpus folder is updated"
    )
    parser.add_argument(
        "--max-words", type=int, default=MAX_WORDS, help=f"maximum number of words per passage (default: {MAX_WORDS})"
    )
    parser.add_argument(
        "--exclude",
        metavar="PATTERN",
        action="append",
        default=[],
        help="leave out files and folders, in the syntax of .gitignore; can be repeated",
    )
    parser.add_argument(
        "--include",
        metavar="PATTERN",
        action="append",
        default=[],
        help="read files and folders that are left out by default: hidden ones, those that .gitignore names, installed "
        "and built ones (node_modules, venv, dist, ...), lock files, minified files; can be repeated",
    )
    parser.add_argument(
        "--all", action="store_true", help="read all files that are left out by default, except those of --exclude"
    )
    parser.add_argument("--workers", type=int, help="number of parser processes (default: number of processors)")
    parser.add_argument(
        "--questions",
        type=int,
        help="maximum number of questions to draft from the passages, for training without judgements (default: "
        f"{QUESTIONS} for a new folder; an update keeps the existing questions); 0 drafts none",
    )
    parser.add_argument(
        "--language-model",
        metavar="NAME",
        help="language model that writes the questions (default: none; questions consist of words of the passages)",
    )
    parser.add_argument(
        "--endpoint",
        default=ENDPOINT,
        help=f"OpenAI-compatible URL of the language model (default: {ENDPOINT}); OPENAI_API_KEY is used as the key",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Convert a folder of documents, and print a summary and the next command to run.

    Args:
        arguments: Arguments of the command.

    Returns:
        Exit status, 0.

    Raises:
        ValueError: If an argument is invalid.
        SystemExit: If the arguments cannot be parsed.
    """
    given = parser().parse_args(arguments)
    check_not_negative(**{"--questions": given.questions or 0})
    require_extra("documents", "graphrerank index")
    if given.language_model is not None:
        require_extra("llm", "graphrerank index --language-model")
    from graphrerank.corpus_store.opening import CORPUS_MANIFEST
    from graphrerank_documents.index_folder import IndexedFolder, index_folder

    if (given.out / CORPUS_MANIFEST).is_file():
        return _grow(given)

    messages: list[str] = []  # printed once the folder is written

    def finish(folder: Path, made: IndexedFolder) -> None:
        questions = QUESTIONS if given.questions is None else given.questions
        if questions and (made.update is None or given.questions is not None):
            messages.append(_draft(folder, given.out, questions, given.language_model, given.endpoint))

    made = index_folder(given.source, given.out, finish=finish, selection=_selection(given), **_parsing(given))
    print(printable(str(made)), *messages, sep="\n")
    print(f"next: graphrerank judge {given.out}    # your own questions, for graphrerank doctor {given.out}")
    print(f"or: graphrerank serve artifact=base index={given.out}    # search it, and look at the page")
    return 0


def _selection(given: Namespace) -> "FileSelection":
    from graphrerank_documents.selection import FileSelection

    return FileSelection(tuple(given.exclude), tuple(given.include), everything=given.all)


def _parsing(given: Namespace) -> dict[str, int]:
    """Return the arguments of the parser of files."""
    return {"max_words": given.max_words, "workers": given.workers}


def _grow(given: Namespace) -> int:
    """Update a corpus folder. New passages are encoded with MiniLM."""
    from graphrerank.config.components import ComponentFactory
    from graphrerank.corpus_store.opening import read_corpus_manifest
    from graphrerank_documents.grow_index import grow_index

    encoder = None if read_corpus_manifest(given.out).encoder is None else ComponentFactory().text_encoder("minilm")
    made, growth = grow_index(given.source, given.out, encoder=encoder, selection=_selection(given), **_parsing(given))
    print(printable(str(made)), flush=True)
    print(f"{growth.num_added:,} passages added, {growth.num_removed:,} removed: {growth.num_nodes:,} in {given.out}")
    return 0


def _draft(folder: Path, out: Path, count: int, name: str | None, endpoint: str) -> str:
    """Draft questions in a folder that will become ``out``, and return a message with their number."""
    from graphrerank.data.synthetic_queries.questions import DRAFTED_FILE
    from graphrerank.utils.caching import cache_folder
    from graphrerank_documents.draft_folder import draft_folder

    if name is None:
        made = draft_folder(folder, count)
    else:
        from graphrerank.language_models.answer_cache import AnswerCache
        from graphrerank.language_models.client import LanguageModel

        model = AnswerCache(LanguageModel(endpoint, name), cache_folder(os.environ) / "answers")
        made = draft_folder(folder, count, model=model, drafted_by=name)
    if not made:
        return "no drafted questions: the passages have too few words"
    path = out / DRAFTED_FILE
    return f"{made:,} drafted questions, not asked by users: {path} (set data.drafted={made} to train on them)"
