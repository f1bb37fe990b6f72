"""Images that messages and results carry: found, and kept by reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from agents_ledger.model.context import ImageItem
from agents_ledger.model.turns import Message

KINDS = ("image", "input_image", "image_url", "localImage")
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
ADDRESSES = ("https://", "http://", "data:image/")


def of_blocks(blocks: Any, owner: str) -> Iterator[ImageItem]:
    """The images among content blocks of any provider. `owner` is where the bytes are kept, if a
    block no longer has them: importers leave them in the source record."""
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("type") in KINDS:
            yield _image(block, owner)


def _image(block: dict[str, Any], owner: str) -> ImageItem:
    source = block.get("source")
    said = {**block, **source} if isinstance(source, dict) else block
    media_type = _text(said, "media_type", "mimeType", "mime_type")
    if _text(said, "data"):
        return ImageItem(f"data:{media_type or 'image/png'};base64,{said['data']}", media_type)
    url = said.get("image_url", said.get("url"))
    address = _text(url, "url") if isinstance(url, dict) else url
    if isinstance(address, str) and address:
        return ImageItem(address, media_type)
    path = _text(said, "path", "filename", "file_id", "id")
    size = f", {said['bytes']} bytes" if isinstance(said.get("bytes"), int) else ""
    return ImageItem(f"{path or owner}{size}", media_type)


def _text(said: dict[str, Any], *names: str) -> str | None:
    found = (said.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value), None)


def of_message(message: Message, metadata: Any) -> list[ImageItem]:
    """The images of a message: blocks that its source had, pictures selected, files attached."""
    said = metadata if isinstance(metadata, dict) else {}
    owner = f"message {message.id}"
    found = list(of_blocks(said.get("blocks"), owner))
    selected = said.get("selectedImages")
    attached = [
        *(each.get("path") for each in _dicts(selected)),
        *(file.file_path for file in message.files if file.kind == "attached"),
    ]
    paths = [path for path in attached if isinstance(path, str) and _is_image(path)]
    for n, image in enumerate(found):
        if paths and image.reference.startswith(owner):  # the same picture, better named
            found[n] = ImageItem(paths.pop(0), image.media_type)
    known = {image.reference for image in found}
    return found + [ImageItem(path) for path in dict.fromkeys(paths) if path not in known]


def _dicts(values: Any) -> Iterable[dict[str, Any]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _is_image(path: str) -> bool:
    return PurePosixPath(path.replace("\\", "/")).suffix.lower() in SUFFIXES


def can_be_sent(image: ImageItem) -> bool:
    """Whether a provider can see it: by an address, or because its bytes are in the reference."""
    return image.reference.startswith(ADDRESSES)


def in_words(image: ImageItem) -> str:
    """An image that cannot be sent."""
    if image.reference.startswith("data:"):
        kind = image.reference.removeprefix("data:").partition(";")[0]
        return f"[image: {kind[:40]}]"
    kind = f" ({image.media_type})" if image.media_type else ""
    return f"[image: {image.reference}{kind}]"
