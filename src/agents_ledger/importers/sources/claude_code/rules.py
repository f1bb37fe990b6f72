"""Claude Code: what its records mean, as learned from 200 files of versions 1.0.0 to 2.1.220.

Which kind of entry a record is, which maps turn its fields into ours, and which texts were written
by the program rather than by a person. How forks are recognised is in tree.py.
"""

from __future__ import annotations

import re

from agents_ledger.importers.parsing.lenient_json import as_number
from agents_ledger.importers.sources.claude_code.records import Record
from agents_ledger.importers.transcript.field_maps import FileTools, TokenFields

NAME = "claude-code"

# -- maps -------------------------------------------------------------------------------------

TOKENS: TokenFields = {
    # The API counts cache reads and writes apart from the input: nothing has to be subtracted.
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_input_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
    "long_cache_write_tokens": "cache_creation.ephemeral_1h_input_tokens",  # a part of these; 2.0
}
FILE_TOOLS = FileTools(
    {
        "Edit": "written",
        # MultiEdit was seen in 1.0.0 to 1.0.108 only.
        "MultiEdit": "written",
        "NotebookEdit": "written",
        "NotebookRead": "read",
        "Read": "read",
        "Write": "written",
    },
    paths=("file_path", "notebook_path"),
)
# Of compactMetadata.trigger: auto 5 times and manual once in real files (2.1).
COMPACTION_TRIGGERS = {"auto": "context_limit", "manual": "manual"}
# The last custom title wins over the last generated one (precedence of the program's own list).
TITLES = {"ai-title": ("ai_title", 1), "custom-title": ("custom_title", 2)}
SYNTHETIC_MODEL = "<synthetic>"  # written by the program: no API call, no usage

# -- kinds of entries -------------------------------------------------------------------------

KINDS = (
    "prompt",
    "command",  # a slash command
    "summary",  # of a compaction
    "boundary",  # of a compaction; the summary follows
    "assistant",
    "result",
    "notice",  # from the program to the agent
    # By the program, as the answer to one of its own commands.
    "printed",
    "queued",  # typed while the agent worked
    # Attachments of hooks, the caveat before a command's output: shown nowhere.
    "other",
    "copy",  # repeats another record of its file
    "failure",  # an interruption, or the last failed attempt
)
ASKING = ("prompt", "command")
COMPACTION = ("summary", "boundary")
PASSIVE = ("notice", "printed", "other", "copy", "failure")  # neither asks nor answers
ENDING = ("assistant", "failure")

COMMAND_TAGS = ("<command-name>", "<command-message>")
PRINTED_TAGS = ("<local-command-stdout>", "<local-command-stderr>")
# Tells the model to ignore the output; nothing for a reader.
CAVEAT = "<local-command-caveat>"
INTERRUPTED = "[Request interrupted by user"  # also "... for tool use]"; 66 in the files
PEER_TAG = "<cross-session-message"  # in the queue before it is given to the agent
NOTICE_TAGS = (
    *PRINTED_TAGS,
    INTERRUPTED,
    "<agent-notification>",  # 2.0; <task-notification> since 2.1
    "<bash-notification>",  # 2.0
    "<bash-stdout>",  # of a "!" command
    "<bash-stderr>",
    "<ci-monitor-event>",  # of the desktop program
    PEER_TAG,
    "<system-reminder>",
    "<task-notification>",
)
# In 13 real files the queue has a task's notice as JSON, without the tag it is delivered in.
QUEUED_NOTICES = (*NOTICE_TAGS, '{"task_id":')
# Records of teammates have neither isMeta nor origin, yet no person typed them.
AGENT_TAGS = ("<teammate-message", PEER_TAG)
# The client's own words (2.1.45 to 2.1.159); `toolDenialKind` was seen in 2.1.80 and later.
REJECTIONS = ("The user doesn't want to proceed", "The user doesn't want to take this action")
# Helpers are given copies of a session's records before their own prompt (agent ids since 2.1).
HELPERS = ("acompact-", "aprompt_suggestion-", "aside_question-")
# Instructions before the question of `/btw`, in the file of its helper (2.1.74 to 2.1.263).
SIDE_QUESTION = "<system-reminder>This is a side question"
# The state of the editor before a prompt, in blocks of their own or in its text (2.0 and 2.1).
_EDITOR_STATE = re.compile(r"\s*<(ide_[a-z_]+)>.*?</\1>\s*", re.DOTALL)
# The program enters it when a limit is reached: nobody types it.
OWN_COMMANDS = ("/rate-limit-options",)
_COMMAND_NAME = re.compile(r"<command-name>/?([^<]*)</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_UNKNOWN_COMMAND = re.compile(r"Unknown (?:skill|slash command): \S+")
_TYPED_COMMAND = re.compile(r"/[a-z][\w:-]*(?:\s.*)?", re.DOTALL)
_COMPACT_COMMAND = re.compile(r"/compact(?:\s.*)?", re.DOTALL)


def words_of(text: str) -> str:
    """A prompt without what the program put before it; all of it if nothing else is there."""
    if text.startswith(SIDE_QUESTION):
        return text.partition("</system-reminder>")[2].strip() or text
    end = 0
    while state := _EDITOR_STATE.match(text, end):
        end = state.end()
    return text[end:] or text


def as_typed(text: str) -> str:
    """A prompt as the user typed it: a command is recorded in tags."""
    name = _COMMAND_NAME.search(text) if text.startswith(COMMAND_TAGS) else None
    if name is None:
        return words_of(text)
    arguments = _COMMAND_ARGUMENTS.search(text)
    return f"/{name[1]} {arguments[1] if arguments else ''}".strip()


def is_command(text: str) -> bool:
    """Whether a text was typed as a command."""
    return _TYPED_COMMAND.fullmatch(text) is not None


def is_printed(text: str) -> bool:
    """Whether the program answers one of its own commands, or one that does not exist."""
    return text.startswith(PRINTED_TAGS) or _UNKNOWN_COMMAND.fullmatch(text) is not None


def kind_of_user_text(text: str, *, is_subagent: bool) -> str:
    """The kind of a user record with this text: few of them were typed by a person.

    A text that looks like a command may be one that is recorded as typed; if the program then
    prints something, no agent was asked. A subagent is given no commands.
    """
    if text.startswith(SIDE_QUESTION):
        return "prompt" if is_subagent else "notice"
    text = words_of(text)
    is_own = as_typed(text) in OWN_COMMANDS
    if text.startswith(COMMAND_TAGS) and not is_own:
        return "command"
    if is_printed(text):
        return "printed"
    if text.startswith(INTERRUPTED):
        return "failure"
    # "/compact" as a record of its own (2.1) is not a prompt: the compaction answers it.
    if is_own or text.startswith(NOTICE_TAGS) or _COMPACT_COMMAND.fullmatch(text):
        return "notice"
    return "command" if is_command(text) and not is_subagent else "prompt"


def kind_of_system_record(record: Record) -> str:
    """The kind of a record that the program wrote itself."""
    if record.subtype == "compact_boundary":
        return "boundary"
    if is_last_attempt(record):
        return "failure"
    text = record.content  # 2.1 writes a command's output as `local_command`
    return "printed" if isinstance(text, str) and is_printed(text) else "notice"


def is_last_attempt(record: Record) -> bool:
    """Whether the program reports the last failed call of the API: before it, it retries."""
    if record.subtype != "api_error":
        return False
    attempt, limit = as_number(record.retry_attempt), as_number(record.max_retries)
    # Records without the two numbers are notices: whether the program went on is not known.
    return bool(attempt and limit and attempt >= limit)
