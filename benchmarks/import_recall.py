"""python benchmarks/import_recall.py REPOSITORY ... [--show 10]  # which imports within a folder become edges?

Reads each repository as `graphrerank index` does and compares its imports with an independent resolution
(`import_oracles.py`), for each language: how many imports of files of the repository are found, and how many pairs of
files are linked that the oracle does not link. An import is found if an edge leads to its module, or to a module from
which that one re-exports the name. Prints a row for each repository and language.
"""

import argparse
from collections import defaultdict
from pathlib import Path

from import_oracles import ORACLES

from graphrerank_documents.document import Document
from graphrerank_documents.folder_walk import list_folder
from graphrerank_documents.module_names import family_of
from graphrerank_documents.pages import path_of_document
from graphrerank_documents.reading import ReadFile, read_content
from graphrerank_documents.selection import FileSelection
from graphrerank_documents.symbols import SymbolIndex


def indexed_imports(files: list[ReadFile], names: list[str]) -> tuple[dict[str, dict[str, int]], int, int]:
    """Return the line of our import by source and target file, and the counts of the account."""
    documents: list[Document] = [document for file in files for document in file.documents]
    manifests = {file.path: file.manifest for file in files if file.manifest is not None}
    index = SymbolIndex(documents, manifests=manifests, files=names)
    edges: defaultdict[str, dict[str, int]] = defaultdict(dict)
    within = resolved = 0
    for document in documents:
        for link in (link for section in document.sections for block in section.blocks for link in block.links):
            if link.edge == "import" and family_of(document.name):
                place = index.find(document, link)
                resolved += place is not None
                within += place is not None or index.is_within(document, link)
                if place is not None:
                    edges[document.name].setdefault(path_of_document(documents[place[0]].name), link.line)
    return edges, resolved, within


def main() -> None:
    """Print the counts, and examples of what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--show", type=int, default=10)
    options = parser.parse_args()
    for folder in (folder.resolve() for folder in options.folders):
        listed = list_folder(folder, folder / "none", FileSelection())
        names = [
            name
            for name in listed.names
            if family_of(name) or name.endswith(("json", "toml", "cfg", "mod", "work", "yaml"))
        ]
        files = [read_content((folder / name).read_bytes(), name) for name in names]
        edges, resolved, within = indexed_imports(files, [*listed.names, *listed.others])
        print(f"{folder.name}: account: imports: {resolved:,} of {within:,} within the folder resolved")
        read = {file.path for file in files if file.documents}
        for language, oracle in ORACLES.items():
            expected = [each for each in oracle(folder).imports() if each.source in read and each.targets & read]
            if not expected:
                continue
            allowed: defaultdict[str, set[str]] = defaultdict(set)
            for each in expected:
                allowed[each.source] |= each.targets
            missed = [each for each in expected if edges.get(each.source, {}).keys().isdisjoint(each.targets)]
            pairs = [(source, target, line) for source, targets in edges.items() if family_of(source) == language
                     for target, line in targets.items() if target != source]  # fmt: skip
            false = [pair for pair in pairs if pair[1] not in allowed[pair[0]]]
            share = 1 - len(missed) / len(expected)
            print(f"  {language}: {len(expected) - len(missed):,} of {len(expected):,} imports found ({share:.2%}); "
                  f"{len(false):,} of {len(pairs):,} pairs of files linked by us alone")  # fmt: skip
            for each in missed[: options.show]:
                print(f"    missed: {each.source}: {each.text} -> {', '.join(sorted(each.targets)[:3])}")
            for source, target, line in false[: options.show]:
                print(f"    ours alone: {source}:{line} -> {target}")


if __name__ == "__main__":
    main()
