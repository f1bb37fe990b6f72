"""pi and OpenClaw: what entries mean.

Learned from the programs' sources (January to October 2026) and from 48 files of OpenClaw and 12 of
pi, in all three versions of the format. How forks are recognised is in tree.py.
"""

from __future__ import annotations

import re

from agents_ledger.importers.transcript.field_maps import FileTools, TokenFields
from agents_ledger.model.turns import FileKind, MessageSource

# -- maps -------------------------------------------------------------------------------------

TOKENS: TokenFields = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cached_input_tokens": "cacheRead",
    "cache_write_tokens": "cacheWrite",
}
FILE_TOOLS = FileTools(
    {
        "edit": "written",
        "edit_file": "written",
        "read": "read",
        "read_file": "read",
        "write": "written",
        "write_file": "written",
    },
    paths=("path", "file_path"),
)
COMPACTION_FILES: dict[str, FileKind] = {"readFiles": "read", "modifiedFiles": "written"}
FAILURES = {"error", "forbidden", "timeout"}  # `details.status` of a result of OpenClaw
SETTINGS = {  # by type of entry, our names and its fields
    "model_change": {"provider": "provider", "model": "model_id"},
    "thinking_level_change": {"thinking_level": "thinking_level"},
}

# -- kinds of entries -------------------------------------------------------------------------

KINDS = (
    "prompt",
    "branch",  # the summary of a branch that was left
    "assistant",
    "result",
    "bash",  # a command that the person ran
    "notice",
    "compaction",
    # Of a call that has no message, as to keep a cache warm.
    "usage",
    "copy",
)
ASKING = ("prompt", "branch")
ROLES = {
    "user": "prompt",
    "assistant": "assistant",
    "toolResult": "result",
    "bashExecution": "bash",
}
TYPES = {
    "compaction": "compaction",
    "branch_summary": "branch",
    "custom_message": "notice",
    "usage": "usage",
}
INJECTED_KINDS = ("compaction", "branch", "notice")
# The only `custom` entry that is shown: without it a prompt seems to have no answer.
PROMPT_ERROR = "openclaw:prompt-error"

# -- OpenClaw's texts -------------------------------------------------------------------------

# In 18 of 24 real branch points such a copy has the same parent as the next entry: no fork.
GATEWAY_MODELS = {"delivery-mirror", "gateway-injected"}  # copies of outbound messages: no call
SILENT = {"NO_REPLY", "HEARTBEAT_OK"}
TIME = re.compile(r"^\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d[^\]]*\] ")
# A channel, with a time in the same brackets.
ENVELOPE = re.compile(
    r"\[(?:[A-Z][a-z]{2} \d{4}-\d\d-\d\d[^\]]*\] )?\[?"
    r"((?!(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )[A-Z][A-Za-z]+) [^\]]*\d{4}-\d\d-\d\d[^\]]*\]"
)
# Channels such as Telegram put it into the text of a prompt, since 2026.2 as metadata.
MESSAGE_ID = re.compile(r'\[message_id: ([^\]\s]+)\]|"message_id": "([^"\s]+)"')
NOTICES = ("System:", "System (untrusted):")  # before a prompt, with an empty line between
# What the gateway puts before the words of a person. 661 of 1,182 real prompts have one of these:
# "Conversation info (untrusted metadata):" and others with JSON (since 2026.2), the time or the
# channel with a time, the id of the message, instructions up to an empty line (since 2026.4).
ENVELOPE_PARTS = re.compile(
    r"[A-Z][^\n]{0,80} \(untrusted[^)\n]{0,40}\):\n```json\n.*?\n```\s*"
    r"|\[[^\]\n]{0,200}\d{4}-\d\d-\d\d[ T]\d\d:\d\d[^\]\n]{0,40}\]\s*"
    r"|\[message_id: [^\]\s]+\]\s*"
    r"|(?:\[Bootstrap pending\]|System(?: \(untrusted\))?:).*?\n\n+",
    re.DOTALL,
)
ENVELOPE_END = re.compile(r"\s*\[message_id: [^\]\s]+\]\s*\Z")  # until 2026.1
# Messages that came while the agent worked, given to it as one prompt (since 2026.1).
QUEUED = "[Queued messages while agent was busy]"
QUEUED_MESSAGE = re.compile(r"\n+---\nQueued #\d+[^\n]*\n")
SUBAGENT_CONTEXT = "[Subagent Context]"  # begins the first prompt of a subagent
SPEAKERS: tuple[tuple[str, MessageSource], ...] = (  # by the beginning of a prompt
    (r"\[cron:|A scheduled reminder has been triggered\.", "cron"),
    (r"Read HEARTBEAT\.md|\[OpenClaw heartbeat", "trigger"),
    (r"A new session was started via /new or /reset|Pre-compaction memory flush", "trigger"),
    (r"Continue where you left off\. The previous model attempt ", "trigger"),
    (r"An async command (?:you ran earlier|the user already approved) has completed", "event"),
    (r"OpenClaw runtime context \(internal\):\n", "event"),
    (r"\[Subagent Context\]", "agent"),
    (r"\[System Message\]|\[Queued announce messages", "event"),
    (r'A (?:background task|subagent task|cron job) "[^\n]*" just ', "event"),
)
# How OpenClaw reports the end of a subagent to its parent, in the bytes of the record.
SUBAGENT_END = b"[Internal task completion event]"
SUBAGENT_ENDS = re.compile(
    rb"\[Internal task completion event\]\\nsource: subagent\\n"
    rb'session_key: ([^\s\\"]+)\\nsession_id: ([^\s\\"]+)'
)
# pi writes `/skill:name arguments` as the whole text of the skill, followed by the arguments.
SKILL = re.compile(
    r'(?P<text><skill name="(?P<name>[^"]+)" location="[^"]+">\n.*?\n</skill>)'
    r"(?:\n\n(?P<arguments>.+))?",
    re.DOTALL,
)
AGENT_KEY = re.compile(r"agent:([^:]+):")


def words_of(text: str) -> str:
    """A prompt without its envelopes; all of it if nothing else is there."""
    messages = QUEUED_MESSAGE.split(text)[1:] if text.startswith(QUEUED) else [text]
    words = "\n\n".join(filter(None, map(_without_envelope, messages)))
    return words or text


def _without_envelope(text: str) -> str:
    end = 0
    while part := ENVELOPE_PARTS.match(text, end):
        end = part.end()
    return ENVELOPE_END.sub("", text[end:]).strip()


def source_of_key(key: str) -> MessageSource | None:
    """Who writes the prompts of a session with this key; None if a person does. The agent's name in
    the key may be anything."""
    agent = AGENT_KEY.match(key)
    # Keys are "agent:<agent>:subagent:<uuid>", "cron:<job>" and "hook:<uuid>", with or without an
    # agent.
    rest = f":{key[agent.end() :] if agent else key}"
    if ":subagent:" in rest:
        return "agent"
    if ":cron:" in rest:
        return "cron"
    return "webhook" if ":hook:" in rest else None
