"""Print R@2 and PR@5 of a run's systems by the type of multi-hop questions, computed from its TREC files.

graphrerank evaluate 'systems=[vector_search,expand_then_rerank]' 'datasets=[2wikimultihopqa]' paths.datasets=DIR
python benchmarks/question_types.py RUN DIR/2wikimultihopqa

A question with four relevant passages is a comparison of two chains. A question with "or", "both" or "same" is a
comparison of two entities. All other questions are chains.
"""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean

from graphrerank.utils.markdown import markdown_table

COMPARES = re.compile(r"\b(or|both|same)\b")


def type_of(text: str, num_relevant: int) -> str:
    """Return the type of a question, from its text and its number of relevant passages."""
    if num_relevant > 3:
        return "two chains compared"
    return "two entities compared" if COMPARES.search(text) else "chain"


def main() -> None:
    """Read the run and the data set, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder of evaluate.py")
    parser.add_argument("folder", type=Path, help="data set folder")
    parser.add_argument("--split", default="test", help="evaluated split (default: %(default)s)")
    arguments = parser.parse_args()
    relevant: dict[str, set[str]] = defaultdict(set)
    for line in (arguments.folder / "qrels" / f"{arguments.split}.tsv").read_text().splitlines()[1:]:
        query, passage, gain = line.split("\t")
        if float(gain) > 0:
            relevant[query].add(passage)
    questions = map(json.loads, (arguments.folder / "queries.jsonl").open(encoding="utf-8"))
    texts = {question["_id"]: question["text"] for question in questions}
    files = sorted((arguments.run / "runs").glob(f"{arguments.folder.resolve().name}.*.trec"))
    asked = {line.split()[0] for file in files for line in file.open(encoding="utf-8")}
    relevant = {query: found for query, found in relevant.items() if query in asked}
    types = {query: type_of(texts[query], len(found)) for query, found in relevant.items()}
    names = ["all", *sorted(set(types.values()))]
    members = {name: [query for query in relevant if name in ("all", types[query])] for name in names}
    rows = []
    for file in files:
        ranked: dict[str, list[str]] = defaultdict(list)
        for line in file.read_text().splitlines():
            query, _, passage, *_ = line.split()
            ranked[query].append(passage)
        cells = []
        for queries in members.values():
            recall = mean(len(relevant[query] & set(ranked[query][:2])) / len(relevant[query]) for query in queries)
            perfect = mean(relevant[query] <= set(ranked[query][:5]) for query in queries)
            cells.append(f"{100 * recall:.1f}, {100 * perfect:.1f}")
        rows.append([file.stem.partition(".")[2], *cells])
    print("R@2, PR@5")
    print(markdown_table(["system", *(f"{name} ({len(members[name])})" for name in names)], rows))


if __name__ == "__main__":
    main()
