"""Cline, Roo Code, Kilo Code: how the values of their files are mapped, and what the clients write.

Evidence for tasks: the programs' sources, six real timelines of 2025 and 2026, a real history of
2026. For sessions (Cline 4, command line 3): cline/cline of 2026-08 (`sdk/packages/core`,
`apps/vscode/src/sdk`) and its history since 2026-04; no real session was seen.
"""

from __future__ import annotations

import re

from agents_ledger.importers.transcript.field_maps import FileTools, TokenFields
from agents_ledger.importers.transcript.message_tree import MessageKind
from agents_ledger.model.turns import FileKind

NAME = "cline"
EXTENSIONS = ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline", "kilocode.kilo-code")

# -- tasks ------------------------------------------------------------------------------------

# Entries of the timeline by `say` or `ask`. checkpoint_created, task_progress and the questions of
# the client make no rows.
TIMELINE_KINDS: dict[str, MessageKind] = {
    **dict.fromkeys(("task", "user_feedback", "user_feedback_diff"), "prompt"),
    **dict.fromkeys(("condense_context",), "compaction"),
    **dict.fromkeys(("api_req_failed", "error"), "failure"),
    **dict.fromkeys(
        ("api_req_started", "diff_error", "error_retry", "mistake_limit_reached"), "notice"
    ),
    **dict.fromkeys(
        (
            "browser_action",
            "browser_action_launch",
            "browser_action_result",
            "command",
            "command_output",
            "completion_result",
            "followup",
            "mcp_server_response",
            "plan_mode_respond",
            "reasoning",
            "subtask_result",
            "text",
            "tool",
            "use_mcp_server",
        ),
        "reply",
    ),
}
# Real timelines open with either; it is the prompt.
FIRST_ENTRIES = ("text", "task")
CALL_ENTRIES = ("tool", "command", "use_mcp_server")
OUTPUT_ENTRIES = ("command_output", "mcp_server_response", "browser_action_result")

TASK_FILE_TOOLS = FileTools(
    {
        "appliedDiff": "written",
        "editedExistingFile": "written",
        "newFileCreated": "written",
        "readFile": "read",
    },
    paths=("path",),
)
# The `content` of these entries is what the tool returned, not what it was given.
RESULT_IN_CONTENT = (
    "listFiles",
    "listFilesTopLevel",
    "listFilesRecursive",
    "searchFiles",
    "webFetch",
)

# In api_req_started. Cached tokens are not part of the input, unless `apiProtocol` is "openai".
TIMELINE_TOKENS: TokenFields = {
    "input_tokens": "tokensIn",
    "output_tokens": "tokensOut",
    "cached_input_tokens": "cacheReads",
    "cache_write_tokens": "cacheWrites",
}
# In `metrics.tokens` of a history message (2026).
HISTORY_TOKENS: TokenFields = {
    "input_tokens": "prompt",
    "output_tokens": "completion",
    "cached_input_tokens": "cached",
}

# What a person wrote, in the messages that the model was sent.
HUMAN = re.compile(r"<(task|feedback|user_message|answer)>\n?(.*?)\n?</\1>", re.DOTALL)
ENVIRONMENT = "<environment_details>"
WORKSPACE = re.compile(r"# Current Work(?:ing|space) Directory \((.+?)\) Files")

# Until native tool calls (2025) a call was XML in the text; results are text in most versions:
# "[read_file for 'x'] Result:".
XML_TOOLS = (
    "access_mcp_resource|apply_diff|ask_followup_question|attempt_completion|browser_action|"
    "codebase_search|execute_command|fetch_instructions|insert_content|list_code_definition_names|"
    "list_files|load_mcp_documentation|new_task|plan_mode_respond|read_file|replace_in_file|"
    "search_and_replace|search_files|switch_mode|update_todo_list|use_mcp_tool|web_fetch|"
    "write_to_file"
)
XML_CALL = re.compile(rf"<({XML_TOOLS})>(.*?)</\1>", re.DOTALL)
XML_PARAM = re.compile(r"<(\w+)>\n?(.*?)\n?</\1>", re.DOTALL)
TEXT_RESULT = re.compile(r"\[(\w+)[^\n]*\] Result:\s*")
FAILED_RESULTS = ("Command failed with exit code ", "The tool execution failed ")

# Tools by which the agent talks to the person, and the parameters that hold its words.
TALKING_TOOLS = ("attempt_completion", "ask_followup_question", "plan_mode_respond")
TALKING_FIELDS = ("question", "response", "result")

# -- sessions ---------------------------------------------------------------------------------

# The client wraps what a person wrote; `slash` names the command it was typed after.
WRAPPER = re.compile(r"\s*<(user_input|user_command)\b([^>]*)>")
WRAPPER_ATTRIBUTE = re.compile(r'(mode|slash)="([^"]+)"')
MODE_NOTICE = re.compile(r"<mode_notice>[^<]*</mode_notice>\s*")
TEAM_COMMAND = "spawn a team of agents for the following task:"  # what /team puts before the text

# Begins a session that continues a task of an older version.
RESUMED = "Warning: this is a legacy conversation, which means tool names may have changed."
INJECTED = (
    RESUMED,
    "<hook_context",
    "[SYSTEM] ",
    "[TASK RESUMPTION]",
    "System-delivered teammate async run updates:",
    "The user approved switching to act mode. Continue with the approved plan now.",
)
# `metadata.kind` of messages that the client writes in the place of a person.
INJECTED_KINDS = (
    "auto_compaction",
    "compaction_budget_emergency",
    "completion_reminder",
    "loop_detection_notice",
    "manual_compaction",
    "mistake_stop_notice",
    "recovery_notice",
)
INJECTED_ROLES = ("error", "status", "system")  # `metadata.displayRole` of such messages
COMPACTION_KINDS = ("compaction", "compaction_summary")  # in the document until 2026-07

SPAWNING_TOOLS = ("spawn_agent", "team_run_task")
SESSION_FILE_TOOLS: dict[str, FileKind] = {"editor": "written", "read_files": "read"}
SESSION_PATHS = ("path", "file_path", "filePath", "files", "file_paths", "paths")

# In `metrics`. The input includes cache reads and writes: the prices in
# llms/src/providers/ai-sdk.ts (2026-08) are computed so.
SESSION_TOKENS: TokenFields = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cached_input_tokens": "cacheReadTokens",
    "cache_write_tokens": "cacheWriteTokens",
    "reasoning_tokens": "reasoningTokenCount",
}

# Ids that no other message has: `msg_` and eight characters, or 21 characters. Others are unique
# in their session only.
UNIQUE_MESSAGE_ID = re.compile(r"msg_[A-Za-z0-9_-]{8}|msg_[0-9a-z]{8}_[0-9a-z]+|[A-Za-z0-9_-]{21}")
# A task that is resumed in Cline 4 gives its id, digits alone, to the session.
TASK_ID = re.compile(r"\d+")
