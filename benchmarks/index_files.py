"""Measure the speed and memory of `graphrerank index`, or test it with damaged files.

python benchmarks/index_files.py DOCUMENTS ... --files 10000
python benchmarks/index_files.py DOCUMENTS ... --fuzz 2000     # every damaged file must be read or listed

The script copies files of the folders, alternating between suffixes so that formats are mixed, and indexes the copies.
Damaged files are truncated, overwritten with random bytes, repeated to 10 MB without a line break, or nested. It prints
the number of files by suffix, seconds, files per second, and the largest memory of a process of the command.
"""

import argparse
import collections
import itertools
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphrerank_documents.readers import suffix_of

LARGEST = 200_000  # size of the largest file that is copied, in bytes
LONG = 10_000_000
NESTED = (b"[", b"{", b"(", b"<div>", b"> ", b"- ", b"\\begin{a}", b'{"a":', b"* ", b"`", b".. note::\n\n   ")


def main() -> None:
    """Index copies of files and print the speed and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of documents")
    parser.add_argument("--files", type=int, default=10_000, help="number of files to index (default: %(default)s)")
    parser.add_argument("--fuzz", type=int, help="number of damaged files to index instead of intact ones")
    parser.add_argument("--seed", type=int, default=0, help="seed of the damage (default: %(default)s)")
    given = parser.parse_args()
    draw = random.Random(given.seed)
    by_suffix = files_by_suffix(given.folders)
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "documents"
        count = given.files if given.fuzz is None else given.fuzz
        for number, path in enumerate(itertools.islice(by_turns(by_suffix, draw), count)):
            content = path.read_bytes() if given.fuzz is None else damaged(path.read_bytes(), draw)
            target = source / f"{number // 200:03}" / f"{number:05}{path.suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        formats = collections.Counter(path.suffix.lower() for path in source.rglob("*") if path.is_file())
        print(", ".join(f"{count:,} {suffix}" for suffix, count in formats.most_common()))
        command = [
            sys.executable,
            "-m",
            "graphrerank.cli.main",
            "index",
            str(source),
            "--out",
            str(Path(work) / "data"),
        ]
        start = time.perf_counter()
        done = subprocess.run([*command, "--questions", "0"], check=False)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
        print(
            f"status {done.returncode}, {seconds:.1f} s, {count / seconds:,.0f} files per second, peak {peak:,.0f} MB"
        )


def files_by_suffix(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files with a supported format by suffix."""
    found: dict[str, list[Path]] = collections.defaultdict(list)
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        if suffix_of(path.name) and path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST:
            found[path.suffix.lower()].append(path)
    return found


def by_turns(files: dict[str, list[Path]], draw: random.Random) -> Iterator[Path]:
    """Yield files endlessly. Each suffix occurs in proportion to the square root of its number of files."""
    suffixes = sorted(files)
    weights = [len(files[suffix]) ** 0.5 for suffix in suffixes]
    while True:
        yield draw.choice(files[draw.choices(suffixes, weights)[0]])


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Damage a file in one of several ways."""
    kind = draw.randrange(20)
    if kind == 0:
        return draw.choice(NESTED) * draw.choice((1_000, 100_000))
    if kind == 1:
        line = content.replace(b"\n", b" ") or b"x "
        return (line * (LONG // len(line) + 1))[:LONG]
    if kind == 2:
        return draw.randbytes(draw.choice((1, 100, 100_000)))
    changed = bytearray(content)
    for _ in range(draw.choice((1, 10, 100))):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    cut = draw.randrange(len(changed) + 1)
    return bytes(changed[:cut] if kind < 12 else changed)


if __name__ == "__main__":
    main()
