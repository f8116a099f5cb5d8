"""The builders by name, and the one call that makes a folder of files."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from graphrerank.checks import check_choice
from graphrerank.data.readers.fetch import Downloader, download
from graphrerank_papers.builders.beaver import build_beaver
from graphrerank_papers.builders.beir import build_beir
from graphrerank_papers.builders.bird import build_bird
from graphrerank_papers.builders.draft import Draft, Origin, check_empty, write_dataset
from graphrerank_papers.builders.hipporag import build_hipporag
from graphrerank_papers.builders.hotpotqa import build_hotpotqa
from graphrerank_papers.builders.ketrag import build_ketrag
from graphrerank_papers.builders.locomo import build_locomo
from graphrerank_papers.builders.longmemeval import build_longmemeval
from graphrerank_papers.builders.musique import build_musique
from graphrerank_papers.builders.nq import build_nq
from graphrerank_papers.builders.raw_files import RawFiles
from graphrerank_papers.builders.spider import build_spider
from graphrerank_papers.builders.stark import build_stark
from graphrerank_papers.builders.two_wiki import build_two_wiki
from graphrerank_papers.builders.ultradomain import build_ultradomain


@dataclass(frozen=True)
class Builder:
    """How a data set is made of its authors' files."""

    title: str
    license: str
    page: str  # where the authors publish the files
    files: str  # those to give
    build: Callable[..., Draft]  # of :class:`RawFiles`; its keyword arguments are the options


BUILDERS: Mapping[str, Builder] = {
    "spider": Builder(
        "Spider 1.0 table retrieval",
        "CC BY-SA 4.0",
        "https://yale-lily.github.io/spider",
        "spider_data.zip, or tables.json with any of train_spider.json, train_others.json, dev.json, test.json",
        build_spider,
    ),
    "bird": Builder(
        "BIRD table retrieval",
        "CC BY-SA 4.0",
        "https://bird-bench.github.io",
        "train.json with train_tables.json, dev.json with dev_tables.json, or archives of them",
        build_bird,
    ),
    "beaver": Builder(
        "BEAVER table retrieval",
        "as its gated page says",
        "https://peterbaile.github.io/beaver",
        "dev.json and dev_tables.json of one warehouse",
        build_beaver,
    ),
    "hotpotqa": Builder(
        "HotpotQA with distractors",
        "CC BY-SA 4.0",
        "https://hotpotqa.github.io",
        "hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json",
        build_hotpotqa,
    ),
    "2wikimultihopqa": Builder(
        "2WikiMultihopQA",
        "Apache-2.0 (text: Wikipedia, CC BY-SA)",
        "https://github.com/Alab-NII/2wikimultihop",
        "data_ids_april7.zip, or train.json and dev.json",
        build_two_wiki,
    ),
    "musique": Builder(
        "MuSiQue",
        "CC BY 4.0",
        "https://github.com/stonybrooknlp/musique",
        "musique_v1.0.zip, or musique_ans_v1.0_train.jsonl and musique_ans_v1.0_dev.jsonl",
        build_musique,
    ),
    "hipporag": Builder(
        "HippoRAG's 1,000 questions",
        "that of the data set",
        "https://huggingface.co/datasets/osunlp/HippoRAG_2",
        "NAME.json and NAME_corpus.json of hotpotqa, 2wikimultihopqa, musique, nq_rear or popqa",
        build_hipporag,
    ),
    "beir": Builder(
        "A data set of BEIR",
        "that of the data set",
        "https://github.com/beir-cellar/beir",
        "an archive, or corpus.jsonl, queries.jsonl and qrels/",
        build_beir,
    ),
    "nq": Builder(
        "Natural Questions as chunks of pages",
        "CC BY-SA 3.0",
        "https://github.com/beir-cellar/beir",
        "BEIR's nq.zip",
        build_nq,
    ),
    "ketrag": Builder(
        "KET-RAG's benchmark",
        "Apache-2.0 (texts: those of MuSiQue, CC BY 4.0, and HotpotQA, CC BY-SA 4.0)",
        "https://github.com/waetr/KET-RAG",
        "ragtest-NAME/input/document.txt and qa-pairs.json, and perhaps MuSiQue's or HotpotQA's own files",
        build_ketrag,
    ),
    "locomo": Builder(
        "LoCoMo",
        "CC BY-NC 4.0",
        "https://github.com/snap-research/locomo",
        "locomo10.json",
        build_locomo,
    ),
    "longmemeval": Builder(
        "LongMemEval",
        "MIT",
        "https://github.com/xiaowu0162/LongMemEval",
        "longmemeval_s.json (or _m, _oracle)",
        build_longmemeval,
    ),
    "ultradomain": Builder(
        "UltraDomain",
        "Apache-2.0",
        "https://huggingface.co/datasets/TommyChien/UltraDomain",
        "the JSONL file of a domain, or of several",
        build_ultradomain,
    ),
    "stark": Builder(
        "STaRK",
        "CC BY 4.0",
        "https://huggingface.co/datasets/snap-stanford/stark",
        "skb/NAME/processed.zip, qa/NAME/stark_qa/stark_qa.csv and qa/NAME/split/ of one knowledge base",
        build_stark,
    ),
}


def build_dataset(
    name: str,
    locations: Sequence[str],
    out: str | Path,
    *,
    downloads: Path,
    options: Mapping[str, Any] | None = None,
    downloader: Downloader = download,
) -> dict[str, Any]:
    """Make a data set folder of a data set's public files.

    Args:
        name: One of :data:`BUILDERS`.
        locations: As of :class:`~graphrerank_papers.builders.raw_files.RawFiles`.
        out: The folder to write; must not exist, or be empty.
        downloads: Folder that keeps what is downloaded.
        options: Settings of the builder, by name.
        downloader: Downloads a location to a path.

    Returns:
        The card: name, licence, files read, counts, what was dropped, hashes.

    Raises:
        ValueError: If a name, option or file is wrong; no folder is left then.
    """
    check_choice(sorted(BUILDERS), build=name)
    check_empty(Path(out))
    builder, given = BUILDERS[name], dict(options or {})
    known = [key for key, each in inspect.signature(builder.build).parameters.items() if each.kind is each.KEYWORD_ONLY]
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"`options` of {name} must be of {known}, got {unknown[0]!r}")
    files = RawFiles(locations, downloads=downloads, downloader=downloader)
    settings = "".join(f" options.{key}={given[key]}" for key in sorted(given))
    origin = Origin(
        builder.title, builder.license, builder.page, f"graphrerank {version('graphrerank')} build={name}{settings}"
    )
    return write_dataset(builder.build(files, **given), Path(out), origin, files)
