"""Adds passages to a corpus folder while it is served, and removes some; they are on the disk before the answer."""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphrerank.data.corpus_folder.growth import EdgeError, Growth, grow_corpus
from graphrerank.data.encoder import Encoder
from graphrerank.files import FolderInUseError
from graphrerank.serving.documents_request import AddDocuments, DocumentsResponse, RemoveDocuments
from graphrerank.serving.engine import TOO_LATE, Check, Refusal
from graphrerank.serving.json_log import log
from graphrerank.serving.search_engine import corpus_version

WAIT_SECONDS = 0.02  # between two looks whether another worker has written


class DocumentsEngine:
    """Changes a corpus folder, one request after the other; of several workers one writes, the others wait.

    Args:
        folder: The corpus folder, or a link to it.
        make_encoder: Returns the encoder of the corpus; None if it has no vectors.
    """

    def __init__(self, folder: Path, make_encoder: Callable[[], Encoder] | None) -> None:
        self._folder = folder
        self._encoder = None if make_encoder is None else make_encoder()

    def answer(self, jobs: Mapping[str, AddDocuments | RemoveDocuments], check: Check = lambda: None) -> dict[str, Any]:
        """Change the corpus for each request of a batch, by id."""
        return {uid: self._answer(uid, job, check) for uid, job in jobs.items()}

    def warm_up(self) -> None:
        """Do nothing: the encoder is that of the searches."""

    def _answer(self, uid: str, job: AddDocuments | RemoveDocuments, check: Check) -> DocumentsResponse | Refusal:
        while True:
            try:
                check()
                growth = self._grow(job)
            except FolderInUseError:
                time.sleep(WAIT_SECONDS)
            except TimeoutError:
                return TOO_LATE
            except EdgeError as error:
                return Refusal(422, f"edges.{error.place}: must join a document of the request with one of the corpus")
            except OSError as error:
                log("corpus could not be written", level=logging.ERROR, error=error, id=uid)
                return Refusal(507, f"the corpus could not be written, and is as before: {error.strerror}")
            except ValueError as error:
                log("corpus takes no documents", level=logging.ERROR, error=error, id=uid)
                return Refusal(409, f"the corpus takes no documents; see the logs for this id: {uid}")
            else:
                return DocumentsResponse(
                    id=uid,
                    added=growth.num_added,
                    removed=growth.num_removed,
                    documents=growth.num_nodes,
                    meta={"index": corpus_version(self._folder)},
                )

    def _grow(self, job: AddDocuments | RemoveDocuments) -> Growth:
        folder = self._folder.resolve()
        if isinstance(job, RemoveDocuments):
            return grow_corpus(folder, remove=job.ids, ignore_absent=True)
        return grow_corpus(
            folder,
            [document.id for document in job.documents],
            [document.passage for document in job.documents],
            edges=job.edges,
            replace=True,
            encoder=self._encoder,
            title_lengths=[len(document.title.strip()) for document in job.documents],
        )
