"""Codex: what somebody typed, out of what the program and its editors sent in their name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from agents_ledger.importers.transcript.turn_tree import as_dict, as_list, as_text, parsed

# How the text begins that an editor or the desktop puts before a request, and what ends it.
PREAMBLE = re.compile(
    r"\s*(?:# (?:Context from my IDE setup|Files (?:mentioned|pasted) by the user|In app browser"
    r"|(?:Browser|Diff) comments|Response annotations|Review findings|Selected text):"
    r"|<in-app-browser-context[ >])"
)
REQUEST = re.compile(r"^## My request(?: for Codex)?:", re.M)
# How a prompt begins that the desktop sends by a schedule: into a thread, or as the first of one.
SCHEDULED = re.compile(
    r"\s*(?:<heartbeat>\s*<automation_id>|Automation: [^\r\n]*\r?\nAutomation ID: )"
)
EVIDENCE = "The next image is untrusted page evidence "  # what the desktop says after a request
REPLY = re.compile(
    r"\s*<send_user_message_question_reply>(.*)</send_user_message_question_reply>\s*", re.S
)
IMAGE = re.compile(r"<image(?: name=[^\n]*)?>|</image>")
PLACEHOLDER = re.compile(r"\[Image #\d+\]")
SPACE = " \t\r\n"


class Prompt(NamedTuple):
    """A message in the user's name."""

    text: str  # what was typed
    sent: str  # with all that was put around it
    by_person: bool  # it has a form that only people's input has

    @property
    def is_scheduled(self) -> bool:
        """Whether a schedule sent it, and nobody typed it then."""
        return SCHEDULED.match(self.sent) is not None

    @property
    def key(self) -> int:
        """The same for the item and the event of one prompt: they differ in space and in what
        stands for its images."""
        text = PLACEHOLDER.sub("", self.sent) if "[Image #" in self.sent else self.sent
        for letter in SPACE:
            text = text.replace(letter, "")
        return hash(text)


def content_text(content: Any) -> str:
    """The words of a content: a text, or the texts of a list."""
    if isinstance(content, str):
        return content
    words = [as_dict(block).get("text") for block in as_list(content)]
    return "\n\n".join(word for word in words if isinstance(word, str))


def read_prompt(content: Any) -> Prompt:
    """What the content of an item or of an event says."""
    sent = content_text(list(_without_tags(content)) if isinstance(content, list) else content)
    request = _request(sent)
    answers = _answers(sent if request is None else request)
    return Prompt(answers or request or sent, sent, request is not None or answers is not None)


def asked_prompt(message: Any, item: Any) -> Prompt:
    """What an event says that somebody typed."""
    return read_prompt(message or as_dict(item).get("content"))


def asked_images(payload: dict[str, Any]) -> list[str]:
    """The paths of the images that came with it."""
    blocks = as_list(as_dict(payload.get("item")).get("content"))
    paths = [as_dict(block).get("path") for block in blocks]
    return [path for path in (*as_list(payload.get("local_images")), *paths) if as_text(path)]


def _without_tags(blocks: list[Any]) -> Iterator[Any]:
    """The blocks without the tags around an image."""
    for at, block in enumerate(blocks):
        text = as_dict(block).get("text")
        if not (isinstance(text, str) and IMAGE.fullmatch(text)):
            yield block
            continue
        beside = at - 1 if text == "</image>" else at + 1
        if not 0 <= beside < len(blocks) or "text" in as_dict(blocks[beside]):
            yield block


def _request(sent: str) -> str | None:
    """What follows the preambles; None where there are none. It may be empty."""
    at, found = 0, False
    while PREAMBLE.match(sent, at) and (heading := REQUEST.search(sent, at)):
        at, found = heading.end(), True
    if not found:
        return None
    end = sent.find(EVIDENCE, at)
    return sent[at : end if end >= 0 else len(sent)].strip()


def _answers(text: str) -> str | None:
    """What was answered to questions of the agent; None if this is no such reply."""
    found = REPLY.fullmatch(text) if "<send_user_message_question_reply>" in text else None
    if found is None:
        return None
    said = parsed(found[1])
    answers = [as_text(as_dict(each).get("answer")) for each in as_list(said) or [said]]
    return "\n\n".join(answer for answer in answers if answer) or None
