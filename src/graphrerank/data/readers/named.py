"""Public data sets by name, read from their folder or fetched from their public home.

Two homes offer files that convert without judgement calls: BEIR's archives, which are data set folders, and the
benchmark files of HippoRAG 2 (title, text and supporting passages). BEIR publishes the checksums of its archives; those
of HippoRAG 2 are of the hub's files at the pinned revision. Spider, BIRD and BEAVER offer databases and SQL in place of
relevant tables, or need an account: users make these folders themselves.
"""

import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.data.dataset import RetrievalDataset
from graphrerank.data.readers.fetch import Downloader, RemoteFile, download, fetch
from graphrerank.data.readers.folder import load_folder
from graphrerank.files import hash_files, write_text

SOURCE = "source.json"  # in a fetched folder: its origin, and the SHA-256 of each file
NEEDED = "corpus.jsonl, queries.jsonl and qrels/<split>.tsv"

_BEIR = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/{}.zip"
_MEMBER = re.compile(r"[^/]+/(corpus\.jsonl|queries\.jsonl|qrels/[\w-]+\.tsv)")
_HIPPORAG = "hf://datasets/osunlp/HippoRAG_2@5ec05b38deecc3318bb432c69865959c56058990/{}"


@dataclass(frozen=True)
class Home:
    """Origin of a named data set."""

    page: str  # its web page
    files: tuple[RemoteFile, ...] = ()  # files to fetch; none if users have to fetch them
    # turns the fetched files into a data set folder; None if there are none
    convert: Callable[[Sequence[Path], Path], None] | None = None


def unpack_beir(files: Sequence[Path], folder: Path) -> None:
    """Extract corpus, queries and judgements from a BEIR archive."""
    (archive,) = files
    try:
        with zipfile.ZipFile(archive) as content:
            for member in filter(None, map(_MEMBER.fullmatch, content.namelist())):
                target = folder / member[1]
                target.parent.mkdir(exist_ok=True)
                with content.open(member[0]) as source, target.open("wb") as stream:
                    shutil.copyfileobj(source, stream, 1 << 20)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive.name}: damaged archive ({error})") from error


def convert_hipporag(files: Sequence[Path], folder: Path) -> None:
    """Turn HippoRAG's questions and corpus into a data set folder with the split ``test``.

    A question's supporting passage is the corpus passage with the same title and text, ignoring white space, or else
    the only one with that title.
    """
    questions_file, corpus_file = files
    try:
        questions, corpus = (json.loads(file.read_text(encoding="utf-8")) for file in files)
        prefix = questions_file.stem
        ids = [f"{prefix}:{i}" for i in range(len(corpus))]
        by_text = {_key(p["title"], p["text"]): doc_id for p, doc_id in reversed(list(zip(corpus, ids, strict=True)))}
        by_title: dict[str, list[str]] = {}
        for passage, doc_id in zip(corpus, ids, strict=True):
            by_title.setdefault(_key(passage["title"], ""), []).append(doc_id)
        relevant = {
            _question_id(question): [_find(questions_file, by_text, by_title, *s) for s in _supporting(question)]
            for question in questions
        }
        documents = [{"_id": i, "title": p["title"], "text": p["text"]} for i, p in zip(ids, corpus, strict=True)]
        queries = [{"_id": _question_id(q), "text": q["question"], "metadata": _answers(q)} for q in questions]
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{corpus_file.name}, {questions_file.name}: not HippoRAG's form ({error!r})") from error
    rows = ["query-id\tcorpus-id\tscore"]
    rows += [f"{query}\t{doc_id}\t1" for query, doc_ids in relevant.items() for doc_id in dict.fromkeys(doc_ids)]
    for name, lines in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_text(folder / name, text)
    write_text(folder / "qrels" / "test.tsv", "\n".join(rows) + "\n")


def _beir(name: str, md5: str) -> Home:
    return Home(
        "https://github.com/beir-cellar/beir", (RemoteFile(_BEIR.format(name), f"md5:{md5}"),), convert=unpack_beir
    )


def _hipporag(name: str, questions: str, corpus: str) -> Home:
    files = (
        RemoteFile(_HIPPORAG.format(f"{name}.json"), f"sha256:{questions}"),
        RemoteFile(_HIPPORAG.format(f"{name}_corpus.json"), f"sha256:{corpus}"),
    )
    return Home("https://huggingface.co/datasets/osunlp/HippoRAG_2", files, convert=convert_hipporag)


HOMES: Mapping[str, Home] = {
    "spider": Home("https://yale-lily.github.io/spider"),
    "bird": Home("https://bird-bench.github.io"),
    "beaver": Home("https://peterbaile.github.io/beaver"),
    "hotpotqa": _hipporag(
        "hotpotqa",
        "3ad9c0bcbf93f41d7004ca6007049c904d2605046b314a2f7ecfb379c64cba6d",
        "9333647b922382776cd2cb02893b390d77984df85a91bfa8be411284978aca7d",
    ),
    "2wikimultihopqa": _hipporag(
        "2wikimultihopqa",
        "895cba294064df0c3302c76847b1fc08d99b5619f7663dfaa3b65cd780f1cac4",
        "9d6e352952aafb18dab22bf8195039461321a44a949df902ae83bce134ad238a",
    ),
    "2wikimultihopqa_train": Home("https://github.com/Alab-NII/2wikimultihop"),
    "musique": _hipporag(
        "musique",
        "98ed4e21d3076532f6388d42320fb809599c63a0d8dffca8ece5e41922be6b46",
        "73157a03ce3f0b1a5673dd5dc12bb970c24976dbffc688af9eecdd758c97ffcb",
    ),
    "beir-nq": _beir("nq", "d4d3d2e48787a744b6f6e691ff534307"),
    "scifact": _beir("scifact", "5f7d1de60b170fc8027bb7898e2efca1"),
    "nfcorpus": _beir("nfcorpus", "a89dba18a62ef92f7d323ec890a0d38d"),
}


def load_named(
    source: str, *, datasets: str | Path, name: str | None = None, downloader: Downloader = download, **options: Any
) -> RetrievalDataset:
    """Read a public data set from ``<datasets>/<source>``; if it is missing, fetch it into that folder first.

    Args:
        source: One of :data:`HOMES`.
        datasets: Folder of data set folders.
        name: Short name; ``source`` when None.
        downloader: Downloads a location to a path.
        options: As of :func:`~graphrerank.data.readers.folder.load_folder`.

    Raises:
        ValueError: If there is no such name; the folder is missing and cannot be fetched, naming where to put the
            files; or a fetched file has changed since.
    """
    if source not in HOMES:
        raise ValueError(f"`source` must be one of {sorted(HOMES)}, got {source!r}; data=folder reads any folder")
    folder = Path(datasets) / source
    if not folder.is_dir():
        _fetch_folder(source, folder, downloader)
    _check_unchanged(folder)
    return load_folder(folder, name=name or source, **options)


def _fetch_folder(source: str, folder: Path, downloader: Downloader) -> None:
    home = HOMES[source]
    remedy = f"put {NEEDED} into {folder}, or set paths.datasets to the folder that holds {source}/; see {home.page}"
    if home.convert is None:
        raise ValueError(f"data set {source!r} is not in {folder} and has no home to fetch it from: {remedy}")
    locations = [file.location for file in home.files]
    print(f"fetching {source} from {', '.join(locations)}", flush=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{source}.", suffix=".tmp", dir=folder.parent) as temporary:
            built = Path(temporary) / source
            built.mkdir()
            home.convert([fetch(file, Path(temporary), downloader=downloader) for file in home.files], built)
            load_folder(built, drop_empty=True)  # refuse now what every later load would refuse
            _write_source(built, home, locations)
            built.rename(folder)
    except (OSError, ValueError) as error:
        if folder.is_dir():  # another process was faster
            return
        raise ValueError(
            f"data set {source!r} is not in {folder} and could not be fetched from {', '.join(locations)}: "
            f"{error}; {remedy}"
        ) from error


def _write_source(folder: Path, home: Home, locations: Sequence[str]) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = {path.relative_to(folder).as_posix(): hash_files([path]) for path in files}
    content = {"page": home.page, "locations": list(locations), "sha256": digests}
    write_text(folder / SOURCE, json.dumps(content, indent=2) + "\n")


def _check_unchanged(folder: Path) -> None:
    """Compare a fetched folder with its checksums; a folder made by hand has none."""
    path = folder / SOURCE
    if not path.is_file():
        return
    try:
        digests = dict(json.loads(path.read_text(encoding="utf-8"))["sha256"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: needed an object with `sha256` of each file ({error!r}); delete {folder}") from error
    for name, expected in digests.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{path}: `sha256` must name files of this folder, got {name[:200]!r}")
        digest = hash_files([folder / name]) if (folder / name).is_file() else "no such file"
        if digest != expected:
            raise ValueError(
                f"{folder / name}: needed SHA-256 {expected}, as when it was fetched, found {digest}; delete {folder} "
                f"to fetch it again, or {SOURCE} to keep the change"
            )


def _question_id(question: Mapping[str, Any]) -> str:
    return str(question["_id"] if "_id" in question else question["id"])


def _supporting(question: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List title and text of a question's supporting passages, in HotpotQA's or MuSiQue's form."""
    if "paragraphs" in question:
        return [(p["title"], p["paragraph_text"]) for p in question["paragraphs"] if p["is_supporting"]]
    text_of = {title: "".join(sentences) for title, sentences in question["context"]}
    return [
        (title, text_of.get(title, "")) for title in dict.fromkeys(fact[0] for fact in question["supporting_facts"])
    ]


def _find(file: Path, by_text: Mapping[str, str], by_title: Mapping[str, list[str]], title: str, text: str) -> str:
    exact, same_title = by_text.get(_key(title, text)), by_title.get(_key(title, ""), [])
    if exact is None and len(same_title) != 1:
        raise ValueError(f"{file.name}: needed supporting passages of the corpus, found {title!r}")
    return exact or same_title[0]


def _key(title: str, text: str) -> str:
    return "".join(title.split()) + "\n" + "".join(text.split())


def _answers(question: Mapping[str, Any]) -> dict[str, Any]:
    return {"answer": question["answer"], "answer_aliases": list(question.get("answer_aliases", []))}
