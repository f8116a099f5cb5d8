"""Break one line of the source at a time, and check that a test fails.

``python benchmarks/mutation_check.py`` applies each mutation of ``mutations.py`` to a copy of the checkout. A mutation
replaces the text of a line: a flipped sign, a moved boundary, a missing normalisation, a wrong axis, an ignored
argument. The tests of the module and its doctests run first, then those of its folder and its package, then the default
suite. The first failure ends the check of a mutation. At the end, the failed tests run without a mutation and must
pass.

The script prints one line per mutation and the number of mutations that were caught. Its exit status is 1 if any
mutation survives.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[1]
FAILURE = re.compile(r"^(?:FAILED|ERROR) ((?:tests|src)/.+?)(?: - .*)?$", re.MULTILINE)
STEP_SECONDS = 1200  # time limit, after which a mutation counts as caught


def copy_checkout(target: Path) -> None:
    """Copy all files that git tracks or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    if (ROOT.parent / "shared").is_dir():
        (target.parent / "shared").symlink_to((ROOT.parent / "shared").resolve())


def mutated(root: Path, mutation: Mutation) -> str:
    """Return the text of a file with the mutation. Exit if the replaced text does not occur exactly once."""
    try:
        return mutation.applied_to((root / mutation.path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise SystemExit(str(error)) from error


def test_steps(checkout: Path, mutation: Mutation, *, quick: bool) -> list[list[str]]:
    """Return the arguments of pytest, narrowest first: the test of the module, the folders above it, all tests."""
    mirrored = Path("tests", mutation.file.replace("graphrerank_papers/", "papers/"))
    test = mirrored.with_name(f"test_{mirrored.name}")
    tests = [str(test)] if (checkout / test).exists() else []
    folders = [str(folder) for folder in test.parents if folder.name not in ("", "tests", "papers")]
    narrow = [[*tests, str(mutation.path)], *([folder] for folder in folders if (checkout / folder).exists())]
    return [["-n", "0", *step] for step in narrow] + ([] if quick else [[]])


def run_pytest(checkout: Path, arguments: list[str]) -> list[str]:
    """Return the first failed tests, "time" if the run does not end, or an empty list if all pass."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=STEP_SECONDS
        )
    except subprocess.TimeoutExpired:
        return ["time"]
    if done.returncode == 1 and (failures := FAILURE.findall(done.stdout)):
        return failures
    if done.returncode not in (0, 5):  # 5: all tests are slow, and the default deselects them
        raise SystemExit(f"pytest {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return []


def catching_tests(checkout: Path, mutation: Mutation, *, quick: bool) -> list[str]:
    """Return the tests that fail on the mutated checkout, or an empty list if all pass."""
    path = checkout / mutation.path
    text = path.read_text(encoding="utf-8")
    path.write_text(mutated(checkout, mutation), encoding="utf-8")
    try:
        for arguments in test_steps(checkout, mutation, quick=quick):
            if failures := run_pytest(checkout, arguments):
                return failures
    finally:
        path.write_text(text, encoding="utf-8")
    return []


def main() -> None:
    """Run all mutations and print the test that caught each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only apply mutations whose file or description contains this text")
    parser.add_argument("--quick", action="store_true", help="do not run the default suite")
    parser.add_argument(
        "--list",
        action="store_true",
        help="run no tests; only check that each file contains the text of its mutation exactly once",
    )
    arguments = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if arguments.only in f"{mutation.file} {mutation.kind}"]
    for mutation in chosen:
        mutated(ROOT, mutation)
    if arguments.list:
        print(*(f"{mutation.file}: {mutation.kind}" for mutation in chosen), f"{len(chosen)} mutations", sep="\n")
        return
    caught: dict[Mutation, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        checkout.mkdir()
        copy_checkout(checkout)
        for mutation in chosen:
            begin = time.perf_counter()
            caught[mutation] = catching_tests(checkout, mutation, quick=arguments.quick)
            verdict = f"caught by {', '.join(caught[mutation])}" if caught[mutation] else "SURVIVES"
            print(f"{mutation.file}: {mutation.kind}: {verdict} ({time.perf_counter() - begin:.0f} s)", flush=True)
        tests = sorted({test for failures in caught.values() for test in failures} - {"time"})
        if tests and (failures := run_pytest(checkout, ["-n", "0", *tests])):
            raise SystemExit(f"tests that fail without a mutation too: {', '.join(failures)}")
    survivors = sum(not failures for failures in caught.values())
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    sys.exit(survivors > 0)


if __name__ == "__main__":
    main()
