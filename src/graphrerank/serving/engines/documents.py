"""Engine of ``/documents``, which adds and removes passages of a corpus folder while it is served."""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import Popen
from typing import Any

from graphrerank.core import Encoder
from graphrerank.corpus_store.growth import EdgeError, Growth, grow_corpus, start_compaction
from graphrerank.corpus_store.opening import open_corpus, read_corpus_manifest
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.serving.auth import WRITE
from graphrerank.serving.engine import Check, Engine, Refusal, too_late
from graphrerank.serving.hot_reload import folder_version
from graphrerank.serving.json_log import log
from graphrerank.serving.schemas.documents import AddDocuments, DocumentsResponse, RemoveDocuments
from graphrerank.utils.files import FolderInUseError

WAIT_SECONDS = 0.02  # time between two attempts while another worker is writing


class DocumentsEngine(Engine[AddDocuments | RemoveDocuments]):
    """Changes a corpus folder, one request at a time. Only one of several workers writes, and the others wait.

    After many changes, a separate process compacts the folder. Requests wait until it is done. Without authenticated
    callers, nobody may change a corpus with access restrictions.

    Args:
        folder: Corpus folder, or a link to one.
        make_encoder: Factory of the encoder of a corpus with vectors. If None, the corpus has no vectors.
        knows_callers: Whether the service authenticates callers.

    Attributes:
        encoder: Encoder of new passages. None for a corpus without vectors.
    """

    encoder: MemoryVectorCache | None = None

    def __init__(
        self, folder: Path, make_encoder: Callable[[], Encoder] | None, *, knows_callers: bool = False
    ) -> None:
        self._folder, self._knows_callers = folder, knows_callers
        reads_vectors = read_corpus_manifest(folder.resolve()).encoder is not None
        if make_encoder is not None and reads_vectors:
            encoder = make_encoder()
            self.encoder = encoder if isinstance(encoder, MemoryVectorCache) else MemoryVectorCache(encoder)
        self._compaction: Popen[bytes] | None = None

    def answer(self, jobs: Mapping[str, AddDocuments | RemoveDocuments], check: Check = lambda: None) -> dict[str, Any]:
        """Change the corpus for each request of a batch.

        Args:
            jobs: Requests by id.
            check: Function that raises TimeoutError once nobody waits for the batch.

        Returns:
            Response or refusal of each request by id.
        """
        return {uid: self._answer(uid, job, check) for uid, job in jobs.items()}

    def _answer(self, uid: str, job: AddDocuments | RemoveDocuments, check: Check) -> DocumentsResponse | Refusal:
        if not self._knows_callers and open_corpus(self._folder.resolve()).graph.is_guarded:
            return Refusal(
                403,
                f"the corpus has access restrictions, so changes require the principal `{WRITE}` from a source of "
                "principals (`permissions`)",
            )
        while True:
            try:
                check()
                growth = self._grow(job)
                if growth.needs_compaction and (self._compaction is None or self._compaction.poll() is not None):
                    self._compaction = start_compaction(self._folder.resolve())
            except FolderInUseError:
                time.sleep(WAIT_SECONDS)
            except TimeoutError:
                return too_late()
            except EdgeError as error:
                return Refusal(
                    422, f"edges.{error.position}: must connect a document of the request with one of the corpus"
                )
            except OSError as error:
                log("corpus could not be written", level=logging.ERROR, error=error, id=uid)
                return Refusal(507, f"the corpus could not be written and is unchanged: {error.strerror}")
            except ValueError as error:
                log("corpus does not accept documents", level=logging.ERROR, error=error, id=uid)
                return Refusal(409, f"the corpus does not accept documents, see the logs for this id: {uid}")
            else:
                counts = {"added": growth.num_added, "removed": growth.num_removed, "documents": growth.num_nodes}
                return DocumentsResponse(id=uid, **counts, meta={"index": folder_version(self._folder)})

    def _grow(self, job: AddDocuments | RemoveDocuments) -> Growth:
        folder = self._folder.resolve()
        if isinstance(job, RemoveDocuments):
            return grow_corpus(folder, remove=job.ids, ignore_absent=True, compact=False)
        return grow_corpus(
            folder,
            [document.id for document in job.documents],
            job.texts_to_encode()[1],
            edges=job.edges,
            replace=True,
            encoder=self.encoder,
            title_lengths=[len(document.title.strip()) for document in job.documents],
            metadata=[document.metadata for document in job.documents],
            compact=False,
        )
