"""Base class of the import resolvers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import dirname
from typing import ClassVar

from graphrerank_documents.document import Document
from graphrerank_documents.imports.manifest import PackageManifest
from graphrerank_documents.module_names import family_of, name_parts


@dataclass(frozen=True)
class ModuleMatch:
    """Module of the folder to which an import may refer, and the names within it.

    Attributes:
        names: If :attr:`file` is empty, components of a name that is qualified from the top folder. Otherwise,
            components of a name within the file; empty for the file as a whole.
        file: Path of the file that is the module, or empty if the module is found by its qualified name.
        is_exact: Whether the whole name must exist. Otherwise, an import of an unknown name of a known module leads to
            the module.
    """

    names: tuple[str, ...]
    file: str = ""
    is_exact: bool = False


@dataclass(frozen=True)
class CodeFiles:
    """Files in which imports are resolved.

    Attributes:
        documents: Documents by the path of the file, in all formats. If a file has several, the first one.
        others: Paths of files that exist but have no document.
        manifests: Package manifests by path.
    """

    documents: Mapping[str, Document]
    others: frozenset[str] = frozenset()
    manifests: Mapping[str, PackageManifest] = field(default_factory=dict)

    def of_family(self, family: str) -> list[str]:
        """Return the paths of the code files of a language family.

        Args:
            family: Language family, as in :func:`~graphrerank_documents.module_names.family_of`.
        """
        return [name for name in self.documents if family_of(name) == family]

    def manifests_named(self, *names: str) -> dict[str, PackageManifest]:
        """Return manifests by folder.

        Args:
            names: File names. If a folder has several, the first one takes precedence.
        """
        found: dict[str, PackageManifest] = {}
        for name in reversed(names):
            found |= {dirname(path): each for path, each in self.manifests.items() if path.rpartition("/")[2] == name}
        return found


class ModuleResolver(ABC):
    """Base class of import resolvers, one for each language family.

    A subclass sets :attr:`family` and overrides :meth:`resolve`. It reads manifests and the tree of files only in its
    constructor. Override :meth:`is_within` if an import can belong to the folder although no module may match.

    Args:
        code: Files of the folder.
    """

    #: Language family, as in :func:`~graphrerank_documents.module_names.family_of`.
    family: ClassVar[str]

    def __init__(self, code: CodeFiles) -> None:
        self.code = code

    @abstractmethod
    def resolve(self, target: str, near: str) -> Iterator[ModuleMatch]:
        """Yield the modules to which an import may refer, the most likely one first.

        Args:
            target: Target of a link of the kind ``symbol``: an absolute name, as the language writes it, or a name
                that is qualified from the top folder and begins with ``/``.
            near: Path of the file with the import.

        Yields:
            Modules that match by name. They need not define the imported name.
        """

    def is_within(self, target: str, near: str) -> bool:
        """Return whether an import refers to the folder rather than to an installed package.

        Args:
            target: Target, as in :meth:`resolve`.
            near: Path of the file with the import.
        """
        return target.startswith("/") or next(self.resolve(target, near), None) is not None


def top_match(target: str) -> ModuleMatch:
    """Return the match of a name that is qualified from the top folder.

    Args:
        target: Name that begins with ``/``.
    """
    return ModuleMatch(tuple(name_parts(target)))


def starts_with(parts: Sequence[str], prefix: Sequence[str]) -> bool:
    """Return whether a sequence of components starts with others.

    Args:
        parts: Components of a name or path.
        prefix: First components to compare.
    """
    return len(parts) >= len(prefix) and list(parts[: len(prefix)]) == list(prefix)
