"""Time the path of a new user: an empty environment, the wheel without extras, JSON documents, the first reranked list.

``python benchmarks/newcomer.py`` builds the wheel, installs it in a new environment, and prints sizes and times. The
code that makes the list must have fewer than ten lines. Its time, without downloads, is the result.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = """import json
from graphrerank import GraphReranker

documents = json.load(open("documents.json"))
reranker = GraphReranker.from_pretrained("base")
ids, texts = [d["id"] for d in documents], [d["text"] for d in documents]
links = [(d["id"], other) for d in documents for other in d["links"]]
for name, score in reranker.rerank("Where is the director of Solaris buried?", texts, ids=ids, edges=links)[:3]:
    print(name, round(score, 2))
"""
DOCUMENTS = [
    {"id": "solaris", "text": "Solaris is a film by Andrei Tarkovsky of 1972.", "links": ["tarkovsky"]},
    {"id": "tarkovsky", "text": "Andrei Tarkovsky was a director. He is buried near Paris.", "links": []},
    {"id": "lem", "text": "Stanislaw Lem wrote novels, and is buried in Krakow.", "links": ["solaris"]},
    {"id": "bread", "text": "Bread is made of flour and water.", "links": []},
]


def main() -> None:
    """Install the wheel, run the example, and print the sizes and times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", help="interpreter of an environment that already has the wheel; no environment is created then"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        python = Path(given.python) if given.python else install(folder)
        (folder / "documents.json").write_text(json.dumps(DOCUMENTS), encoding="utf-8")
        start = time.perf_counter()
        done = subprocess.run([python, "-c", CODE], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
        seconds = time.perf_counter() - start
    lines = [line for line in CODE.splitlines() if line.strip()]
    print(done.stdout, end="")
    print(f"first reranked list: {len(lines)} lines of code, {seconds:.1f} s")
    if len(lines) >= 10 or seconds > 120:
        sys.exit("The example must have fewer than 10 lines and take less than 2 minutes.")


def install(folder: Path) -> Path:
    """Create an environment, install the wheel without extras, print the size, and return the interpreter."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    before = size_of(folder / "venv")
    pip = [python, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, str(ROOT)], check=True)
    start = time.perf_counter()
    (wheel,) = folder.glob("graphrerank-*.whl")
    subprocess.run([*pip, "install", "--constraint", ROOT / "constraints.txt", wheel], check=True)
    seconds = time.perf_counter() - start
    size = (size_of(folder / "venv") - before) / 1e6
    print(f"plain installation: {size:,.0f} MB, {seconds:.0f} s with downloads")
    return python


def size_of(folder: Path) -> int:
    """Return the total size of all files in a folder, in bytes."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
