"""The port to a model that tells which texts mean something alike, and how one is chosen.

Nothing is loaded from a network: a model is a folder, or was put into the local cache before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from agents_ledger.model.errors import MissingExtra, NotFound
from agents_ledger.model.installation.extras import needed


class Embedder(Protocol):
    """Turns texts into vectors. `name` tells whose vectors can be compared."""

    name: str

    def encode(self, texts: Sequence[str]) -> Any:
        """A float array with one row per text."""


class _Model2Vec:
    def __init__(self, name: str, model: str) -> None:
        with needed("meaning", f"the embedder {name}"):
            from model2vec import StaticModel

        self.name = name
        self._model = StaticModel.from_pretrained(model, force_download=False)

    def encode(self, texts: Sequence[str]) -> Any:
        return self._model.encode(list(texts), use_multiprocessing=False)


class _SentenceTransformers:
    def __init__(self, name: str, model: str) -> None:
        from importlib import import_module  # an extra of its own, which checkers do not see

        try:
            library = import_module("sentence_transformers")
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"the embedder {name} requires the package {error.name}, which is not installed",
                "Install it with: pip install sentence-transformers",
                error.name,
            ) from error
        self.name = name
        self._model = library.SentenceTransformer(model, device="cpu", local_files_only=True)

    def encode(self, texts: Sequence[str]) -> Any:
        return self._model.encode(list(texts), show_progress_bar=False, convert_to_numpy=True)


def embedder(chosen: str) -> Embedder:
    """The embedder of a folder, of an installed package that carries a model, or of a name in the
    local cache: by sentence-transformers if the folder is one of its models, else by model2vec."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    folder = _carried(chosen) or Path(chosen).expanduser()
    is_transformer = (folder / "modules.json").exists() and not _is_static(folder)
    made = _SentenceTransformers if is_transformer else _Model2Vec
    try:
        return made(chosen, str(folder) if folder.exists() else chosen)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise NotFound(
            f"there is no embedder at {chosen}: {error}",
            "Name a folder with a model; none is fetched from a network.",
        ) from error


def _carried(chosen: str) -> Path | None:
    """The folder of a model that an installed package of this name carries."""
    name = chosen.replace("-", "_")
    package = find_spec(name) if name.isidentifier() else None
    for place in (package and package.submodule_search_locations) or ():
        if (Path(place) / "model" / "modules.json").exists():
            return Path(place) / "model"
    return None


def _is_static(folder: Path) -> bool:
    """Whether a folder holds a static model, which sentence-transformers can write too."""
    return "StaticEmbedding" in (folder / "modules.json").read_text(encoding="utf-8")
