"""Arithmetic with the paths of files and folders, which are relative to the top folder and separated by ``/``."""

from posixpath import dirname, join, normpath

MAX_DEPTH = 12  # maximum number of path components to consider


def ancestors(folder: str) -> list[str]:
    """Return the path prefixes of a folder, from the top folder (an empty path) to the folder itself.

    Args:
        folder: Path of a folder, or empty for the top folder.

    Returns:
        Paths of at most 13 folders.

    Example:
        >>> ancestors("a/b")
        ['', 'a', 'a/b']
    """
    parts = folder.split("/")[:MAX_DEPTH] if folder else []
    return ["/".join(parts[:end]) for end in range(len(parts) + 1)]


def folders_above(path: str) -> list[str]:
    """Return the folder of a path and its parents, from the inside out. The top folder is the empty string.

    Args:
        path: Path of a file or folder.

    Example:
        >>> folders_above("src/plant/pump.py")
        ['src/plant', 'src', '']
    """
    parts = dirname(path).strip("/").split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1) if parts[0]] + [""]


def path_below(folder: str, path: str) -> str:
    """Return a path below a folder, where ``.`` stands for the folder itself.

    Args:
        folder: Path of a folder, empty for the top folder.
        path: Path relative to the folder. A leading ``/`` is ignored.

    Returns:
        Path relative to the top folder. It starts with ``../`` if it leads out of it.

    Example:
        >>> path_below("a/b", "../c"), path_below("", "."), path_below("a", "src")
        ('a/c', '', 'a/src')
    """
    joined = normpath(join(folder, path.lstrip("/")))
    return "" if joined == "." else joined
