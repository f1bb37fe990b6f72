"""What a field means where nothing is written beside it: a name means the same on every page.

A comment or description at the field itself says more, and is used instead.
"""

from __future__ import annotations

import re

_MEANINGS = """
ability_name: Name of the ability that is called.
ability_id: Full name of the ability, as in `ldg:turn:get`.
ability_count: Number of abilities in the module.
above_id: Next node up; null at the top.
action: `read` or `written`.
agent_id: Id of the agent that the session belongs to.
alias: Another name of the session.
allow: Patterns of the tools that are permitted.
also_in: Number of other sessions whose thread has the turn.
ancestor: Last turn that both threads have.
answer: Last answer of the thread.
applied_at: Time of the migration.
budget: Tokens that the context may have.
cache_write_tokens: Input tokens written to the provider's cache.
cached_input_tokens: Input tokens read from the provider's cache.
call_id: Id of the tool call.
call_status: Status of the call that started the subagent.
calls: Number of calls.
cancelled: Number of calls that were cancelled.
changed_at: Time of the move.
child_label: Label of the subagent's session.
chunk_index: Number of the chunk, from 0.
chunk_total: Number of chunks of the upload.
codeblocks: Code blocks quoted in the message.
compaction: The compaction, if this is a compaction turn.
compaction_count: Number of compactions on the thread.
compaction_turn_id: Latest compaction turn of the thread.
compaction_type: Strategy of the compaction.
completed_at: Time it ended.
completed_at_ms: Time it ended, in Unix milliseconds.
completion_status: How the task ended; null while it runs.
computed: Not recorded: follows from the time of an imported turn.
confidence: Between 0 and 1.
context_json: Context that was sent with the message, as JSON.
context_tokens: Tokens of the context at the turn.
cost_microdollars: Cost in millionths of a US dollar; null without a price.
coverage: Share of the text's weight that the context covers, between 0 and 1.
created_as: What created the session.
created_at: Time of creation.
created_at_ms: Time of creation, in Unix milliseconds.
credentials: Names of the credentials.
day: Day in UTC, as days since 1970-01-01.
deny: Patterns of the tools that are refused, also if permitted.
depth: Number of turns from the root to this turn; the root has 1.
detail: More on the finding.
details: Outcome of the call.
direction: `inbound` for what a user or program sent, `outbound` for answers.
duration_ms: Duration in milliseconds.
effective_config_json: Configuration that the turn ran with, as JSON.
encoding: Encoding of the data.
end_col: Last column.
end_line: Last line.
end_message_id: Message in which the call ended.
enqueued_at: Time the message was queued.
entries: Queue entries of the claim.
entry_id: Id of the queue entry.
entry_ids: Ids of the queue entries that the turn answers.
error: Reason of the failure.
events: Messages, oldest first.
expires_at: Time from which the token is refused.
failed: Number that failed.
file_id: Id of the source file.
file_path: Path of the file.
files_in_both: Paths that both branches touched.
finished_at: Time the import ended.
first_at: Time of the first call.
first_kept_turn_id: First turn before the compaction that stays in the context.
first_seen_at: Time of the first import.
folded: Number of turns between the node above and this one.
from_depth: First depth to read.
grants: Permissions that were given for a time.
has_children: Whether other turns follow it.
head_status: Status of the thread's last turn.
headline: The turn in one line.
heads: Sessions whose head is this turn.
hits: Turns found, in order.
idempotency_key: Key that identifies the request; a repeated one changes nothing.
images: Images of the result.
imported: Number of sessions that were new.
imported_at: Time of the import.
input_tokens: Input tokens.
instead_of: Setting that this one overrides.
is_error: Whether the tool reported an error.
is_stream: Whether the ability streams its answer.
is_subagent: Whether it is the session of a subagent.
kept_bytes: Size of the stored copy.
label: Label of the session.
language: Programming language.
last_at: Time of the last call.
last_used_at: Time of the last call.
layers: Limits of the permissions, each narrowing those before it.
line_end: Last line of the passage.
line_start: First line of the passage.
lines: Lines of the report.
lint_source: Program that reported the problem.
lints: Problems that a linter reported.
longest_ms: Longest duration in milliseconds.
marks: Start and end of each match in the text.
matched: Whether turns have all words or any of them.
matches: Matches on the thread, oldest first.
max_tokens: Maximum number of output tokens.
may_summarise: Whether an engine can write the summary.
media_type: Media type, such as `image/png`.
message_id: Id of the message.
messages: Messages in order.
metadata_json: Other properties, as JSON.
misuses: Calls outside the permissions.
model: Name of the model.
module_name: Name of the module.
next: Cursor of the next page; null on the last one.
nodes: Nodes from top to bottom.
not_available: Number of calls of tools that were not available.
not_granted: Number of calls of tools that were not permitted.
note: Note that a person wrote.
ok: Whether all items succeeded.
origin: Agent that the session comes from; `native` if recorded here.
origin_session_id: Id of the session in its source.
output_tokens: Output tokens.
p50_ms: Median duration in milliseconds.
p95_ms: 95th percentile of the durations in milliseconds.
params: Parameters of the call.
params_json: Parameters of the call, as JSON.
parent_task_id: Task that created this one.
permissions_granted: Permissions of the turn, as JSON.
permissions_used: Permissions that the turn made use of, as JSON.
persona_id: Persona that the turn or session belongs to.
pieces: Number of pieces streamed so far.
priced_on: Date of the price list.
projected: Whether an import made it.
proposals: Candidates, best first.
provider: Provider of the model.
query_message_ids: Ids of the query's messages, as a JSON list.
ready_at: Time before which the entry is not run.
reasoning_tokens: Output tokens spent on reasoning.
reasons: Why it is proposed.
rejected: Number of calls that were not permitted.
response_json: Response to the request, as JSON.
response_message_id: Id of the message that answers.
result_json: Result of the call, as JSON.
results: One result for each item, in order.
revoked_at: Time it was revoked.
role: Author of the message, such as `user` or `assistant`; of a turn, the role of its persona.
routing_key: Key by which programs find the session.
rule: Name of the violated rule.
run_id: Id of the import.
sandbox: Settings of the sandbox, as the persona has them.
saves: Entities to save, in order.
score: Relevance; higher is better.
seen_at: Time it was last looked at.
segment_id: Segment of the thread.
sequence: Position in the turn.
session_label: Label of the session.
session_title: Title of the session, if it has one.
severity: Severity of the problem.
short_id: Shortest prefix that is unique.
signature: Provider's signature of the thinking.
skipped: Number of sessions without changes.
snippet: Passage around the match.
snippets: Passages around the matches.
source_event_id: Id of the event that the turn answers.
source_id: Id of the message.
source_session_fingerprint: Fingerprint of the content in the source.
source_session_id: Id of the session in its source.
source_status: Status in the words of the source.
spawn_tool_call_id: Tool call that started the subagent.
spawned_session_label: Session of the subagent that the call started.
spent: Tokens and cost.
starred: Whether the session is starred.
start_col: First column.
start_line: First line.
start_message_id: Message that has the call.
started_at: Time it began.
started_at_ms: Time it began, in Unix milliseconds.
stop_reason: Why the model stopped.
strategy: Name of the compaction strategy.
stream_id: Id of the stream.
summarises: Whether it writes a summary.
summarization_input_tokens: Input tokens of the request for the summary.
summarization_output_tokens: Output tokens of the request for the summary.
summarized_through_turn_id: Last turn that the summary covers.
summary: Text of the summary.
summary_tokens: Tokens of the summary.
system_prompt: System prompt.
system_prompt_hash: Hash of the system prompt, under which it is stored.
task_description: What the subagent was asked to do.
task_id: Id of the task.
task_status: Status of the subagent's task.
tasks: Tasks of the page.
temperature: Sampling temperature.
terms: Words that both have.
thinking: Reasoning text of the model.
thread_id: Turn at the end of the thread.
thread_key: Key of the thread in another system.
timed: Number of calls whose duration is known.
timestamp: Time of the message.
to_depth: Last depth to read.
tokens_after: Tokens of the context after the compaction.
tokens_before: Tokens of the context before the compaction.
tool_call_count: Number of tool calls.
tool_call_id: Id of the tool call.
tool_name: Name of the tool.
tool_number: Position among the calls of one message.
tools_available: Tools that the model could call, as JSON.
toolset_name: Name of the set of tools.
total_tokens: Tokens in all.
touches: Turns that touched a file.
trigger: What caused the compaction.
turn_count: Number of turns.
turn_id: Id of the turn.
turn_type: `normal` or `compaction`.
turns_kept: Number of turns that stay in the context.
turns_summarized: Number of turns that the summary covers.
unchecked: Number of calls without recorded permissions.
unfinished: Number of calls without an outcome.
unpriced: Models without a price.
updated_at: Time of the last change.
updated_at_ms: Time of the last change, in Unix milliseconds.
upload_id: Id of the upload that the chunks belong to.
upserted: Number of sessions that changed.
usage: Tokens that it took.
uses: Uses of each tool.
vector: The embedding.
words: Words that were searched for.
workspace_path: Folder that the agent worked in.
writer_id: Process that writes it.
"""
MEANINGS = dict(line.split(": ", 1) for line in _MEANINGS.strip().splitlines())


def common_meaning(name: str) -> str:
    """The meaning of a field by its name, which may be in camel case; "" for an ambiguous name."""
    return MEANINGS.get(
        re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter[0].lower()}", name), ""
    )
