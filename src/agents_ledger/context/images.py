"""Images that messages and results carry: found, and kept by reference. Other attached files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from agents_ledger.model.context.items import ImageItem
from agents_ledger.model.turns import Message, MessageFile

KINDS = ("image", "input_image", "image_url", "localImage")
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
IMAGE_DATA = "data:image/"
WEB = ("https://", "http://")
ADDRESSES = (*WEB, IMAGE_DATA)


def of_blocks(blocks: Any, owner: str) -> Iterator[ImageItem]:
    """The images among content blocks of any provider. `owner` is where the bytes are kept, if a
    block no longer has them: importers leave them in the source record."""
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("type") in KINDS:
            yield _image(block, owner)


def _image(block: dict[str, Any], owner: str) -> ImageItem:
    source = block.get("source")
    fields = {**block, **source} if isinstance(source, dict) else block
    media_type = _text(fields, "media_type", "mimeType", "mime_type")
    if _text(fields, "data"):
        return ImageItem(f"data:{media_type or 'image/png'};base64,{fields['data']}", media_type)
    url = fields.get("image_url", fields.get("url"))
    address = _text(url, "url") if isinstance(url, dict) else url
    if isinstance(address, str) and address:
        return ImageItem(address, media_type)
    path = _text(fields, "path", "filename", "file_id", "id")
    size = f", {fields['bytes']} bytes" if isinstance(fields.get("bytes"), int) else ""
    return ImageItem(f"{path or owner}{size}", media_type)


def _text(fields: dict[str, Any], *names: str) -> str | None:
    candidates = (fields.get(name) for name in names)
    return next((value for value in candidates if isinstance(value, str) and value), None)


def of_message(message: Message, metadata: Any) -> list[ImageItem]:
    """The images of a message: blocks that its source had, pictures selected, files attached."""
    fields = metadata if isinstance(metadata, dict) else {}
    owner = f"message {message.id}"
    images = list(of_blocks(fields.get("blocks"), owner))
    selected = (selection.get("path") for selection in _dicts(fields.get("selectedImages")))
    attached = (file.file_path for file in message.files if file.kind == "attached")
    paths = [path for path in selected if isinstance(path, str)]
    paths += filter(_is_image, attached)
    for n, image in enumerate(images):
        if paths and image.reference.startswith(owner):  # the same picture, better named
            images[n] = ImageItem(paths.pop(0), image.media_type)
    references = {image.reference for image in images}
    return images + [ImageItem(path) for path in dict.fromkeys(paths) if path not in references]


def _dicts(values: Any) -> Iterable[dict[str, Any]]:
    return (
        [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
    )


def _is_image(path: str) -> bool:
    if path.startswith("data:"):
        return path.startswith(IMAGE_DATA)
    if path.startswith(WEB):
        path = path.partition("#")[0].partition("?")[0]
    return PurePosixPath(path.replace("\\", "/")).suffix.lower() in SUFFIXES


def attached_files(message: Message) -> list[str]:
    """The files attached to a message that are no images, in words: their content is not here."""
    attached = (file for file in message.files if file.kind == "attached")
    return [_file_in_words(file) for file in attached if not _is_image(file.file_path)]


def _file_in_words(file: MessageFile) -> str:
    lines = ""
    if file.line_start is not None:
        lines = f", lines {file.line_start} to {file.line_end or file.line_start}"
    return f"[file: {_named(file.file_path)}{lines}]"


def _named(reference: str) -> str:
    """An address, or the media type of one that holds the content itself."""
    if not reference.startswith("data:"):
        return reference
    return reference.removeprefix("data:").partition(",")[0].partition(";")[0][:40]


def can_be_sent(image: ImageItem) -> bool:
    """Whether a provider can see it: by an address, or because its bytes are in the reference."""
    return image.reference.startswith(ADDRESSES)


def in_words(image: ImageItem) -> str:
    named = _named(image.reference)
    kind = f" ({image.media_type})" if image.media_type and named == image.reference else ""
    return f"[image: {named}{kind}]"
