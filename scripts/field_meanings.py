"""What a field means where nothing is written beside it: a name means the same on every page, or
within one table, type or ability.

A comment or description at the field itself says more, and is used instead.
"""

from __future__ import annotations

import re

_MEANINGS = """
ability_count: Number of abilities in the module.
ability_id: Full name of the ability, as in `ldg:turn:get`.
ability_name: Name of the ability that is called.
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
by: What decided the value.
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
content: Text of the message.
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
files: Files of the message.
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
key: Session: its label or one of its aliases.
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
long_cache_write_tokens: Of the tokens written to the cache, those kept for an hour.
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
origin: Agent that the session comes from; `native` if recorded here.
origin_session_id: Id of the session in its source.
output_tokens: Output tokens.
p50_ms: Median duration in milliseconds.
p95_ms: 95th percentile of the durations in milliseconds.
params: Parameters of the call.
params_json: Parameters of the call, as JSON.
parent_task_id: Task that created this one.
part: Part of the context: the summary, kept turns, turns since, or the query.
path: Path of the file.
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
result: Result of the call.
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
since: Start of the period, in Unix milliseconds.
skipped: Number of sessions without changes.
snippet: Passage around the match.
snippets: Passages around the matches.
source_event_id: Id of the event that the turn answers.
source_id: Id of the message.
source_provider: Agent that the session comes from.
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
title: Title of the session.
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
until: End of the period, in Unix milliseconds.
updated_at: Time of the last change.
updated_at_ms: Time of the last change, in Unix milliseconds.
upload_id: Id of the upload that the chunks belong to.
upserted: Number of sessions that changed.
usage: Tokens that it took.
uses: Uses of each tool.
value: Value of the setting.
vector: The embedding.
words: Words that were searched for.
workspace_path: Folder that the agent worked in.
writer_id: Process that writes it.
"""

# Of names that mean something else elsewhere.
_OF_ONE = """
access_tokens.id: Id of the token.
access_tokens.name: Name of the token.
bus_calls.id: Id of the call.
bus_calls.position: Number of the row, in the order of announcement.
bus_calls.status: Status of the call.
bus_messages.id: Id of the message.
bus_messages.partial: 1 while the message is streamed.
bus_messages.position: Number of the row, in the order of the conversation.
bus_stream_texts.content: Text of the piece.
bus_stream_texts.piece: Number of the piece.
bus_streams.id: Id of the stream.
bus_tasks.id: Id of the task.
import_runs.id: Id of the import.
message_codeblocks.content: Code of the block.
message_codeblocks.id: Number of the row.
message_files.id: Number of the row.
message_files.kind: What the message did with the file.
message_lints.id: Number of the row.
message_lints.message: What the linter reported.
messages.id: Id of the message.
partial_texts.content: Text of the piece.
queue.mode: What happens if a turn is running: see the modes of the queue.
queue.status: Status of the entry.
search_docs.id: Number of the turn in the index.
segments.id: Number of the segment.
session_import_chunk_parts.mode: Whole sessions, or what is new of them.
session_import_chunk_parts.payload: Data of the chunk.
session_import_chunk_parts.source: Program that sent the request.
session_import_requests.mode: Whole sessions, or what is new of them.
session_import_requests.source: Program that sent the request.
session_imports.source: Program that sent the request.
sessions.status: Whether the session is listed; `deleted` hides it also from searches.
source_blocks.base_length: Length of the part of that file that is the base; NULL: all of it.
source_files.id: Number of the file.
source_files.kind: How the file grows: by lines, as one document, or as rows of a database.
source_titles.title: Title in the source.
system_prompts.content: Text of the prompt.
tool_calls.status: Status of the call.
tool_sums.status: Status of the calls.
usage_sums.tool_calls: Number of tool calls.
usage_sums.turns: Number of turns.
writers.id: Id of the process.
AbilitySummary.description: What the ability does.
AbilitySummary.id: Full name of the ability.
Alias.reason: Why the alias exists.
Branch.files: Files that the branch touched, by path.
Branch.models: Use of each model.
Branch.tools: Number of calls of each tool, most used first.
Branch.turns: The latest turns, oldest first.
CallBegun.call: The call.
CallEntity.status: Status of the call.
CallItem.id: Id of the tool call.
CallStep.status: Status of the call.
Chosen.first: Index of the first turn that stays.
Chosen.picked: Indexes of single older turns that stay.
ChunkResponse.status: `completed` with the last chunk.
ChunkResponse.total: Number of chunks of the upload.
CodeblockInput.content: Code of the block.
CompactionPlan.session: Label of the session.
Comparison.a: Branch of the first thread.
Comparison.b: Branch of the second thread.
Completed.beside: Whether the turn is off the session's head.
Completed.text: Text of the response.
Context.cuts: What was removed to keep the budget.
Context.items: Messages, calls and results, oldest first.
Context.repairs: What was repaired so that providers accept the context.
Context.tokens: Estimated tokens by part.
Context.turns: Number of turns shown, by part.
Cut.kind: What was removed.
Cut.tokens: Estimated tokens that were saved.
Digest.sessions: Sessions with messages of the period.
Embedder.name: Name of the embedding model; only vectors of one name are compared.
EndedCall.status: Status of the call.
EngineCheck.mode: Thoroughness of the check.
Event.channel: Agent that the message comes from; `native` if recorded here.
Event.id: Id of the event.
Event.source_adapter: Always `agents-ledger`.
Failed.kept: Text of the response that was recorded.
FileInput.kind: What the message did with the file.
Finding.id: Row that violates the rule.
Fix.failed: Call that failed.
Fix.succeeded: Call that succeeded.
Fixes.fixes: Fixes, most similar error first.
Grant.persona: Persona that receives the permissions.
Grant.reason: Why it was granted.
Grant.tools: Tools that are permitted.
Headline.text: Beginning of the first message.
Headline.turn: The turn.
Hit.query: Beginning of the first message.
Hit.status: Status of the turn.
ImageItem.reference: Address of the image, or words that say where it is.
ImportChunk.data: Data of the chunk.
ImportChunk.source: Program that sends the request.
ImportItem.session: Fields of the session.
ImportItem.tool_calls: Tool calls in order.
ImportItem.turns: Turns in order.
ImportRequest.items: Sessions to import.
ImportRequest.source: Program that sends the request.
ImportResult.status: Outcome of the item.
ImportSession.project: Name of the project.
Layer.models: Patterns of the models that are permitted.
LintInput.message: What the linter reported.
Message.id: Id of the message.
Message.source: What sent the message.
MessageCodeblock.content: Code of the block.
MessageDone.text: Text of the message.
MessageFile.kind: What the message did with the file.
MessageLint.message: What the linter reported.
MessageStep.type: Marks the step as a message.
MisusedCall.at: Time of the call.
MisusedCall.what: Why the call was outside the permissions.
ModuleSummary.name: Name of the module.
Move.id: Number of the move.
Move.reason: Why the head moved.
Node.subagents: Subagents that the turn started.
OfferedTool.run: Function that runs the tool.
OfferedTool.tool: Tool as the model sees it.
Passage.text: Text of the passage.
Passage.tokens: Estimated tokens of the passage.
Permissions.persona: Persona of the turn.
Permissions.tools: Tools that are permitted.
Problem.index: Index of the message.
Problem.what: What a provider would refuse.
QueueEntry.id: Id of the queue entry.
QueueEntry.mode: What happens if a turn is running.
QueueEntry.position: Position in the queue.
QueueEntry.status: Status of the entry.
Reason.files: Files that both have.
Recalled.passages: Passages, best first.
Recalled.tokens: Estimated tokens of all passages.
Repair.id: Id of the call or message.
Repair.what: What was done.
Replaced.new: Text after the change.
Replaced.old: Text before the change.
Request.call: Runs a tool.
Request.config: Model and settings.
Request.items: Messages, calls and results, oldest first.
Request.steer: Returns messages that arrived meanwhile.
Request.tools: Tools offered to the model.
ResultItem.text: Text of the result.
Rollup.sessions: Number of sessions.
Rollup.turns: Number of turns.
Route.kind: Kind of the target.
SaveInput.call: Call to save.
SaveInput.message: Message to save.
SaveInput.task: Task to save.
SearchFacets.kinds: Kinds of text that match.
SearchFacets.origins: Agents that the turns come from.
SearchFacets.projects: Projects of the turns.
Session.parent_session_label: Session that started the subagent.
Session.parent_turn_id: Turn that started the subagent.
Session.status: Whether the session is listed; `deleted` hides it also from searches.
SessionUsage.own: Use of the thread's own turns.
SessionUsage.subagents: Use of its subagents.
SessionUsage.total: Use of both together.
SmartFork.session: Session that was created; null if no turn fits well enough.
Snippet.part: Part of the turn that the text is from.
Snippet.text: Text of the passage.
Spent.paid_output_tokens: Output tokens with reasoning, as providers charge them.
Spent.tool_calls: Number of tool calls.
Spent.turns: Number of turns.
Steered.text: Text of the message.
Strategy.choose: Function that chooses the turns that stay.
Strategy.name: Name of the strategy.
Subagent.session: Session of the subagent.
Task.id: Id of the task.
TaskCall.id: Id of the call.
TaskCall.parameters: Parameters of the call, as JSON.
TaskCall.status: Status of the call.
TaskMessage.id: Id of the message.
TaskMessagePage.total: Number of messages of the task.
TaskPage.total: Number of tasks.
TextItem.text: Text of the message.
TextPiece.text: Next piece of the text.
ThinkingItem.text: Reasoning text of the model.
ThinkingPiece.text: Next piece of the reasoning.
Thread.turns: The requested turns, root first.
Tool.description: What the tool does, as the model reads it.
Tool.name: Name of the tool.
Tool.parameters: JSON Schema of the parameters.
ToolCall.id: Id of the tool call.
ToolCall.status: Status of the call.
ToolCallStep.type: Marks the step as a tool call.
ToolExample.call: The call.
ToolExample.failed: Number of equal calls that failed.
ToolExample.succeeded: Number of equal calls that succeeded.
ToolExamples.examples: Calls, most frequent first.
ToolInvocation.call: The running call.
TouchedFile.kinds: What was done with the file.
TouchedFile.turns: Number of turns that touched the file.
Turn.id: Id of the turn.
Turn.parent_turn_id: Turn that it follows; null at a root.
Turn.status: Status of the turn.
Turn.tool_calls: Tool calls in order.
TurnFields.config: Configuration of the turn.
UsageLine.key: Period, model, agent, project or session of the line.
UsageLine.models: Use of each model, most tokens first.
UsageLine.parts: The same by model, project or agent, if requested.
UsagePart.key: Model, project or agent of the part.
UsageReport.by: What the lines are grouped by.
UsageReport.total: Sum of all lines.
Used.tools: Number of calls of each tool.
VisibleTurn.text: Text of the turn.
VisibleTurn.tokens: Estimated tokens of the turn.
WrittenFile.b: The same of the second branch.
WrittenFile.by: Branches that wrote the file.
ldg:call:list.status: Status of the calls.
ldg:compaction:record.session: Session to compact.
ldg:compaction:run.session: Session to compact.
ldg:live:begin.config: Configuration of the turn.
ldg:live:respond.response: Response that ends the turn.
ldg:live:stream.text: Next piece of the text.
ldg:msg:append.text: Next piece of the text.
ldg:session:head.at: Time for which the head is returned; by default now.
ldg:session:list.parent: Session whose subagents are listed.
ldg:session:smart_fork.text: Text that the forked turn should be related to.
ldg:turn:record.config: Configuration of the turn.
ldg:turn:record.response: Response of the turn.
ldg:usage:get.project: Project whose turns are counted.
"""
MEANINGS = dict(line.split(": ", 1) for line in f"{_MEANINGS}{_OF_ONE}".split("\n") if line)


def common_meaning(name: str, owner: str = "") -> str:
    """The meaning of a field by its name, which may be in camel case, and the table, type or
    ability that has it; "" for an ambiguous name."""
    name = re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
    return MEANINGS.get(f"{owner}.{name}") or MEANINGS.get(name, "")
