"""Files that are kept are written by ``utils/files.py`` or ``utils/tensor_files.py``: whole or not at all, in place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import graphrerank

PACKAGE = Path(graphrerank.__file__).parent
PACKAGES = [PACKAGE, *(PACKAGE.parent / f"graphrerank_{name}" for name in ("documents", "papers"))]
WRITERS = {
    *("write_text", "write_bytes", "savefig", "save_file", "save_pretrained", "savez", "savez_compressed", "savetxt"),
    *("to_csv", "to_parquet", "copyfile", "copy2", "copytree", "copyfileobj", "move", "extractall"),
    *("extract_all", "save_model", "dump", "aoti_compile_and_package"),
}
SAVERS = ("torch", "np", "numpy", "jit", "export", "OmegaConf", "onnx", "pickle", "image")  # whose `save` writes a file
OURS = {"write_text", "write_bytes"}  # of utils/files.py, called without an object
ELSEWHERE = {  # file -> why it writes by itself
    "builders/builder.py": "within atomic_folder",
    "index_folder.py": "within atomic_folder",
    "data/candidate_table.py": "a block that does not count before the checked state names it",
    "data/readers/fetch.py": "a download, under the name of a part until it is whole",
    "evaluation/memory.py": "a counter of the kernel's, no file",
    "evaluation/plots.py": "a picture in memory",
    "ea_graphrag/adapter_training.py": "within atomic_path",
    "operators/cross_encoder.py": "within atomic_folder",
    "serving/feedback_log.py": "within atomic_path",
    "artifacts/formats.py": "export_artifact hands out a path within atomic_folder",
    "serving/supervisor.py": "the name of a process in the kernel, no file",
    "training/callbacks.py": "within atomic_path",
    "training/ray_workers.py": "the output of a process while it runs, in a temporary folder",
}


def raw_writes(path: Path) -> Iterator[str]:
    """Calls in a file that write one by themselves."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        owned = isinstance(node.func, ast.Attribute)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = ast.unparse(node.func.value).split(".")[-1] if isinstance(node.func, ast.Attribute) else ""
        given = [*node.args[0 if owned else 1 :], *(keyword.value for keyword in node.keywords)]
        modes = [str(entry.value) for entry in given if isinstance(entry, ast.Constant)]
        opens = name in ("open", "fdopen") and any(len(mode) <= 3 and set(mode) & set("wax+") for mode in modes)
        if opens or (name in WRITERS and not (name in OURS and not owned)) or (name == "save" and owner in SAVERS):
            yield f"line {node.lineno}: {ast.unparse(node.func)}"


def test_files_are_written_by_the_one_writer() -> None:
    found = {}
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package).as_posix()
            if name not in ("utils/files.py", "utils/tensor_files.py") and (calls := list(raw_writes(path))):
                found[name] = calls
    assert {name: calls for name, calls in found.items() if name not in ELSEWHERE} == {}
    assert sorted(set(ELSEWHERE) - set(found)) == []  # what no longer writes by itself


def test_raw_writes_are_found(tmp_path: Path) -> None:
    lines = [
        "open('a', 'w')",
        "path.open(mode='ab')",
        "path.write_text('x')",
        "torch.save(x, path)",
        "np.savez(path, x=x)",
        "torch.jit.save(m, path)",
        "shutil.copyfile(a, b)",
        "json.dump(x, f)",
        "save_file(t, path)",
    ]
    harmless = [
        "open('a')",
        "path.open('rb')",
        "write_text(path, 'x')",
        "json.dumps(x)",
        "self.save(x)",
        "path.read_text()",
    ]
    (tmp_path / "a.py").write_text("\n".join([*lines, *harmless]))
    assert [int(call.split(":")[0].split()[1]) for call in raw_writes(tmp_path / "a.py")] == list(
        range(1, len(lines) + 1)
    )
