"""``python evaluate.py prepare=DIR``: write a data set as a corpus folder, which is mapped and not read."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graphrerank.cli.session import Session
from graphrerank.data import prepare_corpus


def prepare_folder(session: Session) -> Path:
    """Encode and index the data set that the command names; with MiniLM where it names no encoder.

    Raises:
        ValueError: If it names several, or the folder cannot be written.
    """
    cfg = session.cfg
    names = session.dataset_names()
    if len(names) != 1:
        raise ValueError(f"`prepare` needs one data set (data=folder data.path=DIR), got {names}")
    dataset = session.build(session.data(names[0]))
    print(dataset.summary(), flush=True)
    encoder = None
    if session.choice("encoder") != "none":
        encoder = session.text_encoder(cfg.encoder or session.group("encoder", "minilm"))
    console = Console(stderr=True)
    columns = (TextColumn("passages"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("passages", total=dataset.graph.num_nodes)
        folder = prepare_corpus(
            dataset,
            cfg.prepare,
            encoder=encoder,
            vectors=cfg.vectors,
            index=cfg.index,
            cache=session.cache / "candidates",
            progress=lambda passages: bar.advance(task, passages),
        )
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{dataset.graph.num_nodes:,} passages, {size / 1e6:,.1f} MB")
    return folder
