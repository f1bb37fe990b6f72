"""Gemini CLI: how the values of a chat are mapped, and what the client writes by itself.

Evidence: chatRecordingService of google-gemini/gemini-cli (2026-08) and real chats of the versions
0.2x to 0.40.
"""

from __future__ import annotations

import re

from agents_ledger.importers.transcript.field_maps import FileTools, TokenFields
from agents_ledger.importers.transcript.message_tree import MessageKind
from agents_ledger.model.turns import CallStatus

NAME = "gemini-cli"

# "model" is the role in the oldest form, a history of the API's contents.
KINDS: dict[str, MessageKind] = {"user": "prompt", "gemini": "reply", "model": "reply"}
NOTICES = ("info", "error", "warning")

STATUSES: dict[str, CallStatus] = {
    "success": "completed",
    "error": "failed",
    "cancelled": "cancelled",
}
FILE_TOOLS = FileTools(
    {"read_file": "read", "replace": "written", "write_file": "written"},
    # 2026-01 chats say file_path, older sources the other.
    paths=("file_path", "absolute_path"),
)

# `input` includes `cached`; `tool` is noted in the metadata of the message.
TOKENS: TokenFields = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cached_input_tokens": "cached",
    "reasoning_tokens": "thoughts",
    "total_tokens": "total",
}

# An `info` message with this text ends a request that got no answer.
CANCELLED = "Request cancelled."
# Other errors after an answer are of something else, such as an unknown command.
API_ERROR = "[API Error: "

# Ids of calls contain the time, "write_file-1768510312836-c85bc7" (2026-01), later with "_". Of 100
# real calls 5 ended before their message was written.
CALL_TIME = re.compile(r"[-_](\d{13})[-_]")

# Messages of the type "user" that the client sends; the last three end a subagent's run.
INJECTED = (
    "System: Please continue.",
    "<session_context>",
    "This is the Gemini CLI.",
    "You have exceeded the maximum number of turns. You have one final chance",
    "You have exceeded the time limit. You have one final chance",
    "You have stopped calling tools without finishing. You have one final chance",
)

# What a person typed while the agent worked, with instructions to the model around it: in quotes in
# the first versions, in a tag since 2026-02 (source: fastAckHelper).
STEERING = re.compile(
    r"User (?:steering update|hints):\s*"
    r'(?:<user_input>\n(.*?)\n</user_input>|"(.*?)"\nInternal instruction: )',
    re.DOTALL,
)

# What hooks added to a prompt (version 0.61): its own tags in it are escaped.
HOOK_CONTEXT = re.compile(r"<hook_context>.*?</hook_context>", re.DOTALL)

# Fewer characters of an argument could be part of any subagent's prompt.
SPAWN_ARGUMENT_MIN = 8

SESSION_FIELDS = (  # to the metadata of the session
    "projectHash",
    "directories",
    "kind",
    "activeExtensionName",
    "memoryScratchpad",
)
