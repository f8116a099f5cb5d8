"""Write a data set folder with the first questions of a split and fewer passages.

``python benchmarks/smaller_corpus.py data/hotpotqa small/hotpotqa --questions 100 --passages 600`` writes the passages
that are relevant to these questions, and further ones that are chosen by a hash.
"""

import argparse
import hashlib
import json
from pathlib import Path

COPIED_METADATA = ("answer", "answer_aliases", "answerable")  # entries of a question's metadata that are copied


def main() -> None:
    """Read a data set folder and write the smaller one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="data set folder")
    parser.add_argument("target", type=Path, help="folder to create")
    parser.add_argument("--split", default="test", help="split of the questions (default: %(default)s)")
    parser.add_argument(
        "--questions",
        type=int,
        default=100,
        help="number of questions, in the order of their ids (default: %(default)s)",
    )
    parser.add_argument(
        "--passages", type=int, default=600, help="number of passages, relevant ones included (default: %(default)s)"
    )
    arguments = parser.parse_args()
    header, *rows = (arguments.folder / "qrels" / f"{arguments.split}.tsv").read_text().splitlines()
    question_ids = set(sorted({row.split("\t")[0] for row in rows})[: arguments.questions])
    rows = [row for row in rows if row.split("\t")[0] in question_ids]
    relevant = {row.split("\t")[1] for row in rows}
    lines = {json.loads(line)["_id"]: line for line in (arguments.folder / "corpus.jsonl").open(encoding="utf-8")}
    others = sorted(set(lines) - relevant, key=lambda number: hashlib.sha256(number.encode()).digest())
    passages = relevant | set(others[: max(0, arguments.passages - len(relevant))])
    (arguments.target / "qrels").mkdir(parents=True)
    (arguments.target / "qrels" / f"{arguments.split}.tsv").write_text("\n".join([header, *rows]) + "\n")
    with (arguments.target / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        corpus.writelines(line for number, line in lines.items() if number in passages)
    with (arguments.target / "queries.jsonl").open("w", encoding="utf-8") as queries:
        for line in (arguments.folder / "queries.jsonl").open(encoding="utf-8"):
            question = json.loads(line)
            if question["_id"] in question_ids:
                metadata = question.get("metadata") or {}  # Other entries may name passages that are left out.
                question["metadata"] = {name: metadata[name] for name in COPIED_METADATA if name in metadata}
                queries.write(json.dumps(question) + "\n")


if __name__ == "__main__":
    main()
