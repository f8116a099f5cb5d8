"""``graphrerank judge DATA``: a page in the browser on which questions are typed and relevant passages are clicked."""

import contextlib
from pathlib import Path
from threading import Thread

import torch
import uvicorn
from omegaconf import DictConfig

from graphrerank.cli.command import CommandContext
from graphrerank.cli.demo import has_screen, open_page
from graphrerank.cli.diagnose import read_dataset_with_edges, search_components
from graphrerank.cli.jobs import register_models
from graphrerank.data.candidates import with_vectors
from graphrerank.evaluation.pooling import PooledSearch
from graphrerank.installation.extras import require_extra
from graphrerank.models.checkpoint import load_primary
from graphrerank.serving.judging.app import create_judging_app
from graphrerank.serving.judging.store import JudgementStore
from graphrerank.serving.server import local_listener
from graphrerank.utils.checks import UserError, check_counts


def run(cfg: DictConfig) -> None:
    """Serve the page until a signal stops it. Every saved question is written at once.

    Args:
        cfg: Settings of ``conf/judge.yaml``.

    Raises:
        UserError: If the data set is not a folder, or a setting is invalid.
    """
    require_extra("serve", "graphrerank judge")
    folder = Path(str(cfg.dataset))
    if not folder.is_dir():
        raise UserError(f"`dataset` must be a data set folder, in which judgements are written, got {cfg.dataset!r}")
    check_counts(depth=cfg.depth)
    register_models(cfg.models)
    search = build_search(CommandContext(cfg))
    store = JudgementStore(folder, search.dataset.graph.node_ids, split=cfg.split)
    listener = local_listener(cfg.port)
    address = f"http://localhost:{listener.getsockname()[1]}"
    app = create_judging_app(search, store, port=cfg.port, name=search.dataset.name)
    print(f"Judge questions at {address}/. Each question is saved to {folder}. Stop with Ctrl+C.", flush=True)
    if cfg.browser and has_screen():
        Thread(target=open_page, args=(address, "/state"), daemon=True).start()
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, proxy_headers=False)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again after it has stopped
        uvicorn.Server(config).run([listener])
    judged = sum(bool(question.relevant) for question in store.questions())
    print(f"{judged:,} judged questions. next: graphrerank doctor {cfg.dataset}", flush=True)


def build_search(command: CommandContext) -> PooledSearch:
    """Load the data set, the encoder, the retriever and the checkpoint of the command, and encode the passages.

    Args:
        command: Running command.

    Returns:
        Search for the passages to judge.
    """
    cfg, parts = command.cfg, command.parts
    source = str(cfg.checkpoint)
    checkpoint = load_primary(source)
    manifest = checkpoint.graph_reranker
    retriever, encoder = search_components(command, manifest)
    torch.set_num_threads(parts.num_threads)
    dataset, text_encoder, build_retriever = parts.load(
        read_dataset_with_edges(command, manifest),
        encoder=encoder,
        retriever=retriever,
        reads_vectors=manifest.inputs.reads_vectors,
    )
    return PooledSearch(
        with_vectors(dataset, text_encoder, parts.cache / "candidates"),
        checkpoint,
        encoder=text_encoder,
        build_retriever=build_retriever,
        device=parts.device,
        depth=cfg.depth,
    )
