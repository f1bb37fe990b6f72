"""ChatGPT: how the values of an export are mapped.

Evidence: two published exports and the parsers of others; the export has no version number.
Branches and tool calls were checked on written examples only.
"""

from __future__ import annotations

from agents_ledger.importers.transcript.message_tree import MessageKind

KINDS: dict[str, MessageKind] = {"user": "prompt", "assistant": "reply", "tool": "reply"}

# Custom instructions and memory are nodes of the role "user" that nobody typed.
INSTRUCTION_TYPES = ("user_editable_context", "model_editable_context")

# Any other recipient is a tool: "python", "browser", "dalle.text2im".
EVERYONE = ("all", "", None)

# Of aggregate_result.status, as the code interpreter ends.
FAILED_PREFIXES = ("failed", "error")
FAILED_TYPE = "system_error"  # the content type of a tool's failure
FINISHED_STATUSES = (None, "finished_successfully", "finished")

# Text is in `parts` or, depending on the content type, in one of these fields.
TEXT_FIELDS = ("text", "result", "content", "user_profile", "user_instructions")

CONVERSATION_FIELDS = (  # to the metadata of the session
    "default_model_slug",
    "gizmo_id",
    "gizmo_type",
    "is_archived",
    "is_starred",
    "conversation_origin",
    "plugin_ids",
    "voice",
)
MESSAGE_FIELDS = (  # to the metadata of the message
    "attachments",
    "citations",
    "content_references",
    "finish_details",
    "is_visually_hidden_from_conversation",
    "search_result_groups",
)
