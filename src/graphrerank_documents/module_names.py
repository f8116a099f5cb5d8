"""Names of code modules by the paths of their files."""

import re
from functools import lru_cache
from posixpath import dirname, splitext

_FAMILIES = {
    suffix: family
    for family, suffixes in {
        "python": "py pyi ipynb",
        "script": "js jsx mjs cjs ts tsx mts cts vue svelte astro",
        "go": "go",
        "java": "java",
        "rust": "rs",
        "c": "c h cc cpp cxx hh hpp hxx",
        "kotlin": "kt kts",
        "csharp": "cs",
        "php": "php",
        "ruby": "rb",
    }.items()
    for suffix in suffixes.split()
}
#: Language families whose files write the qualified names that they define, so that imports must match them exactly.
EXACT_FAMILIES = frozenset(("kotlin", "csharp", "php", "ruby"))
_SEPARATORS = re.compile(r"::|[./#\\]")
_JAVA_SOURCES = re.compile(r"^(?:.*/)?src/\w+/java/|^(?:.*?/)?(?:src|java)/")


def family_of(name: str) -> str:
    """Return the language family of a code file, such as ``script`` for JavaScript and TypeScript.

    Args:
        name: Path of the file.

    Returns:
        Name of the family, or an empty string if the file is not code. Notebooks belong to Python.
    """
    return _FAMILIES.get(name.rpartition(".")[2].lower(), "")


@lru_cache(maxsize=1 << 16)
def module_of(name: str) -> str:
    """Return the module or package that qualifies the names defined in a file.

    Args:
        name: Path of the file.

    Returns:
        Name with dots as separators, whatever the language uses. Empty for C and C++, because their names do not depend
        on the path.

    Example:
        >>> module_of("src/pump/__init__.py"), module_of("web/index.ts"), module_of("a-b/src/c/mod.rs")
        ('src.pump', 'web', 'a_b.c')
        >>> module_of("pump/motor.go"), module_of("src/motor.cpp")
        ('pump', '')
        >>> module_of("analysis/pump.ipynb")
        'analysis.pump (notebook)'
    """
    family, path = family_of(name), splitext(name)[0].removesuffix(".d")
    if family == "c" or family in EXACT_FAMILIES:
        return ""
    if name.lower().endswith(".ipynb"):  # a notebook imports modules of Python, and no module imports it
        path += " (notebook)"
    parts = name_parts(dirname(name) if family == "go" else path)
    if family == "java":  # source folders, including those of tests, are not part of the package
        parts = name_parts(_JAVA_SOURCES.sub("", dirname(name) + "/"))
    if family == "rust":
        parts = [part.replace("-", "_") for part in parts if part != "src"]
    last = {"python": ("__init__",), "script": ("index",), "rust": ("mod", "lib", "main")}.get(family, ())
    return ".".join(parts[:-1] if parts and parts[-1] in last else parts)


def name_parts(text: str) -> list[str]:
    """Return the components of a path or qualified name, whatever the separator.

    Args:
        text: Path, or name qualified by ``.``, ``::``, ``/``, ``#`` or a backslash.

    Example:
        >>> name_parts("example.com/plant::Motor")
        ['example', 'com', 'plant', 'Motor']
    """
    return [part for part in _SEPARATORS.split(text) if part]
