"""``python evaluate.py prepare=DIR``: write a data set as a corpus folder, which is mapped and not read."""

import inspect
from contextlib import closing
from pathlib import Path
from typing import Any

from hydra.utils import get_object, instantiate
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from graphrerank.cli.session import Session
from graphrerank.data.corpus_folder.preparation import check_own_folder, prepare_corpus
from graphrerank.data.dataset import RetrievalDataset


def prepare_folder(session: Session) -> Path:
    """Encode and index the data set that the command names; with MiniLM where it names no encoder.

    Raises:
        ValueError: If it names several, or the folder cannot be written.
    """
    cfg = session.cfg
    names = session.dataset_names()
    if len(names) != 1:
        raise ValueError(f"`prepare` needs one data set (data=folder data.path=DIR), got {names}")
    check_own_folder(Path(cfg.prepare))
    with closing(instantiate(cfg.engine)) as engine:
        dataset = _dataset(session, names[0], engine)
        chosen = session.usual_encoder()
        print(dataset.summary(encoded=chosen is not None), flush=True)
        encoder = None if chosen is None else session.text_encoder(chosen)
        console = Console(stderr=True)
        columns = (TextColumn("passages"), BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("passages", total=dataset.graph.num_nodes)
            folder = prepare_corpus(
                dataset,
                cfg.prepare,
                encoder=encoder,
                vectors=cfg.vectors,
                index=cfg.index,
                cache=session.cache / "candidates",
                engine=engine,
                progress=lambda passages: bar.advance(task, passages),
            )
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{dataset.graph.num_nodes:,} passages, {size / 1e6:,.1f} MB")
    return folder


def _dataset(session: Session, name: str, engine: Any) -> RetrievalDataset:
    """Load the data set; a reader that finds edges in texts does so on the engine."""
    group = session.data(name)
    taken = inspect.signature(get_object(group["_target_"])).parameters
    further = {"engine": engine, "keep_derived": True}
    dataset: RetrievalDataset = instantiate(
        group, **{name: further[name] for name in further if name in taken or "options" in taken}
    )
    return dataset


class _Speed(ProgressColumn):
    """Passages a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} a second")
