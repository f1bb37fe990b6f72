"""Codex: the rules learned from its logs and its source, each with its evidence.

Versions are those of rollouts that were read (0.47 to 0.146, prompts up to 0.159). "Source" is
codex-rs as of August 2026.
"""

from __future__ import annotations

import re

from agents_ledger.importers.transcript.field_maps import FileTools, TokenFields

NAME = "codex"

# -- records ----------------------------------------------------------------------------------

# Source: protocol. 0.47 has these five; rollouts of September 2025 have no envelope at all.
ENVELOPES = {"session_meta", "turn_context", "response_item", "event_msg", "compacted"}
# The tokens of one response, also of one that compacts (since 0.151, source: protocol).
USAGE = "token_usage_record"
# world_state since 0.140; other agents' logs use none of these types.
ENVELOPES_ONLY_HERE = ENVELOPES | {"world_state", "inter_agent_communication_metadata", USAGE}
# Items of the agent whose type does not end in "_call"; agent_message comes from another agent.
AGENT_ITEMS = {"reasoning", "agent_message"}
# Events that add to a call. 0.120 to 0.128 keep the end of each command, later versions do not.
DETAIL_EVENTS = {
    "collab_agent_spawn_end",
    "exec_command_end",
    "mcp_tool_call_end",
    "patch_apply_end",
    "sub_agent_activity",
}
# The same in `item_completed`, which a paginated history has instead of events (source: TurnItem).
DETAIL_ITEMS = {
    "CollabAgentToolCall",
    "CommandExecution",
    "DynamicToolCall",
    "FileChange",
    "McpToolCall",
    "SubAgentActivity",
}
ENDINGS = {"error", "task_complete", "turn_aborted"}
# A call of these has no output record: web_search_call 0.118, image_generation_call in fixtures.
CALLS_WITHOUT_OUTPUT = ("web_search_call", "image_generation_call")
# 0.118: a child forked within a turn has this in place of the parent's spawn_agent result.
NEWLY_SPAWNED = b"You are the newly spawned agent."
IMAGE_FIELDS = ("image_url", "result", "data")

# -- session metadata: our name, the source's field -------------------------------------------

META_FIELDS = {
    "originator": "originator",
    "version": "cli_version",
    "model_provider": "model_provider",
    "forked_from": "forked_from_id",
    "agent_nickname": "agent_nickname",
    "agent_role": "agent_role",
    "agent_path": "agent_path",
    "cwd": "cwd",
}
GIT_FIELDS = {"git_branch": "branch", "git_commit": "commit_hash", "repository": "repository_url"}
SETTINGS = ("approval_policy", "sandbox_policy", "effort", "summary", "personality")
# Rollouts without envelopes (2025) name the folder nowhere else.
CWD_IN_PROMPT = re.compile(r"<cwd>([^<]+)</cwd>")

# -- tokens -----------------------------------------------------------------------------------

# Cached tokens are part of the input, reasoning of the output (0.47 to 0.146: the sums agree).
TOKENS: TokenFields = {
    "input_tokens": "input_tokens",
    "cached_input_tokens": "cached_input_tokens",
    "cache_write_tokens": "cache_write_input_tokens",
    "output_tokens": "output_tokens",
    "reasoning_tokens": "reasoning_output_tokens",
    "total_tokens": "total_tokens",
}

# -- how a call ended -------------------------------------------------------------------------

STATUS_CHARS = 600  # of an output, in which its status is looked for
# "Process exited" since 0.118, "Exit code:" of apply_patch and shell since 0.140.
EXIT_CODE = re.compile(r"(?:Process exited with code|Exit code:) (-?\d+)")
# "apply_patch verification failed: " 0.47, "collab spawn failed: " 0.118, "write_stdin failed: "
# 0.126.
FAILED = re.compile(r"[\w/ -]{1,60} failed: ")
# Source: "declined" in ends of commands and patches.
DENIED = ("declined", "denied", "rejected")
CALL_DETAILS = ("exit_code", "new_thread_id", "status", "success")

# -- files ------------------------------------------------------------------------------------

# view_image was seen in 0.142.
FILE_TOOLS = FileTools({"view_image": "read", "read_file": "read"}, paths=("path", "file_path"))

# -- prompts ----------------------------------------------------------------------------------

# Beginnings of user messages that the client writes itself: those of the source's
# core/src/context/contextual_user_message.rs, and what older versions wrote. Rollouts showed
# <environment_context> in 0.47, <subagent_notification> in 0.118, <turn_aborted> in 0.120,
# "# AGENTS.md instructions" in 0.140 and <skill> in 0.142.
INJECTED = (
    "# AGENTS.md instructions",
    "<codex_internal_context",
    "<environment_context>",
    "<external_",
    "<goal_context>",
    "<hook_prompt",
    "<node_repl_review_evidence>",
    "<permissions",
    "<recommended_plugins>",
    "<skill>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_action>",
    "<user_instructions>",
    "<user_shell_command>",
    "Warning: The maximum number of unified exec processes you can keep open is",
    "Warning: Your account was flagged for potentially high-risk cyber activity",
    "Warning: apply_patch was requested via ",
)
# What an editor or the desktop app puts before a request, and the heading that ends it: "# Files
# mentioned by the user" in 0.126. The program itself cuts at the same heading.
PREAMBLE = re.compile(
    r"\s*(?:# (?:Context from my IDE setup|Files (?:mentioned|pasted) by the user|In app browser"
    r"|(?:Browser|Diff) comments|Response annotations|Review findings|Selected text):"
    r"|<in-app-browser-context[ >])"
)
REQUEST = re.compile(r"^## My request(?: for Codex)?:", re.M)
# What the desktop app puts after a request (up to 0.159).
EVIDENCE = "The next image is untrusted page evidence "
# Prompts that the desktop app sends on a schedule, though an event calls them a user's: into a
# thread, or as the first of one (up to 0.159).
SCHEDULED = re.compile(
    r"\s*(?:<heartbeat>\s*<automation_id>|Automation: [^\r\n]*\r?\nAutomation ID: )"
)
# Answers to questions of the agent, as JSON in a tag (up to 0.159).
REPLY = re.compile(
    r"\s*<send_user_message_question_reply>(.*)</send_user_message_question_reply>\s*", re.S
)
# 0.126: an item has tags around an image where the event has a placeholder in its text.
IMAGE_TAG = re.compile(r"<image(?: name=[^\n]*)?>|</image>")
IMAGE_PLACEHOLDER = re.compile(r"\[Image #\d+\]")

# -- scripts ("code mode", since 0.144) -------------------------------------------------------

SCRIPT = "exec"  # the tool that runs a script
SCRIPT_TOOLS = (SCRIPT, "wait")  # tools whose output is that of a script
SCRIPT_CALL = f"{SCRIPT}-"  # prefix of the ids of calls that a script made
# Types of events, and of their items, that report a call of a script; and the tool called.
SCRIPT_CALL_TOOLS = {
    "CommandExecution": "exec_command",
    "FileChange": "apply_patch",
    "McpToolCall": "mcp",
    "WebSearch": "web_search",
    "exec_command_end": "exec_command",
    "mcp_tool_call_end": "mcp",
    "patch_apply_end": "apply_patch",
    "web.search": "web_search",
    "web_search_end": "web_search",
}
SCRIPT_HEADER = re.compile(
    r"Script (\w{1,32})(?!\w)[^\n]{0,200}\nWall time [\d.]+ seconds\nOutput:\n"
)
SCRIPT_ERROR = "Script error:\n"
SCRIPT_TRUNCATED = re.compile(
    r"\s*(?:Warning: truncated output [^\n]*\n(?:Total output lines: \d+\n)?\s*)?"
)
# A command's result as a script prints it; what follows the exit code may be cut off.
SCRIPT_EXIT_CODE = re.compile(
    r'\{\s*(?:"\w+":\s*(?:[\w.+-]+|"[^"\\]*"),\s*)*"exit_code":\s*(-?\d{1,9})\b'
)
