-- Guards: what was recorded is not changed, whoever writes. Made anew after every migration.
-- The store turns their word `guard:` into a Refused error.
-- There is one door: while a row of `redactions` is not finished, in the transaction that made it, texts may be
-- replaced, but nothing beside them; and rows may go if it purges.

-- A sealed turn may only learn that it has children.
CREATE TRIGGER turns_update BEFORE UPDATE OF
    id, parent_turn_id, turn_type, status, started_at, completed_at, model, provider, role,
    toolset_name, tools_available, permissions_granted, permissions_used, input_tokens,
    output_tokens, cached_input_tokens, cache_write_tokens, reasoning_tokens, total_tokens,
    query_message_ids, response_message_id, tool_call_count, source_event_id, workspace_path,
    effective_config_json, error, projected, request_hash, long_cache_write_tokens
ON turns
WHEN EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = OLD.id) AND (
    NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL) OR (
        NEW.id, NEW.parent_turn_id, NEW.turn_type, NEW.status, NEW.started_at, NEW.completed_at,
        NEW.model, NEW.provider, NEW.role, NEW.input_tokens, NEW.output_tokens,
        NEW.cached_input_tokens, NEW.cache_write_tokens, NEW.reasoning_tokens, NEW.total_tokens,
        NEW.query_message_ids, NEW.response_message_id, NEW.tool_call_count, NEW.projected,
        NEW.long_cache_write_tokens
    ) IS NOT (
        OLD.id, OLD.parent_turn_id, OLD.turn_type, OLD.status, OLD.started_at, OLD.completed_at,
        OLD.model, OLD.provider, OLD.role, OLD.input_tokens, OLD.output_tokens,
        OLD.cached_input_tokens, OLD.cache_write_tokens, OLD.reasoning_tokens, OLD.total_tokens,
        OLD.query_message_ids, OLD.response_message_id, OLD.tool_call_count, OLD.projected,
        OLD.long_cache_write_tokens
    )
)
BEGIN SELECT RAISE(ABORT, 'guard: a sealed turn does not change'); END;

CREATE TRIGGER turns_children BEFORE UPDATE OF has_children ON turns
WHEN NEW.has_children < OLD.has_children AND OLD.projected = 0
BEGIN SELECT RAISE(ABORT, 'guard: a turn does not lose its children'); END;

-- Only what a projection may rewrite can go.
CREATE TRIGGER turns_delete BEFORE DELETE ON turns
WHEN (OLD.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = OLD.id))
AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: turns are never deleted'); END;

CREATE TRIGGER turns_compaction BEFORE INSERT ON turns
WHEN (NEW.turn_type = 'compaction')
    <> EXISTS (SELECT 1 FROM compactions c WHERE c.turn_id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'guard: a compaction turn, and no other, has a compactions row, written first'); END;

CREATE TRIGGER turns_type BEFORE UPDATE OF turn_type ON turns
WHEN NEW.turn_type <> OLD.turn_type AND OLD.projected = 0
BEGIN SELECT RAISE(ABORT, 'guard: a turn does not change its type'); END;

CREATE TRIGGER compactions_insert BEFORE INSERT ON compactions
WHEN EXISTS (SELECT 1 FROM turns t WHERE t.id = NEW.turn_id AND t.turn_type <> 'compaction')
BEGIN SELECT RAISE(ABORT, 'guard: only a compaction turn has a compactions row'); END;

-- Nothing is added to a sealed turn of ours. One that is being recorded has no place yet.
CREATE TRIGGER messages_insert BEFORE INSERT ON messages
WHEN EXISTS (SELECT 1 FROM places p WHERE p.turn_id = NEW.turn_id)
    AND EXISTS (
        SELECT 1 FROM turns t
        WHERE t.id = NEW.turn_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
    )
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER tool_calls_insert BEFORE INSERT ON tool_calls
WHEN EXISTS (SELECT 1 FROM places p WHERE p.turn_id = NEW.turn_id)
    AND EXISTS (
        SELECT 1 FROM turns t
        WHERE t.id = NEW.turn_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
    )
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER message_files_insert BEFORE INSERT ON message_files
WHEN EXISTS (
    SELECT 1 FROM messages m JOIN places p ON p.turn_id = m.turn_id JOIN turns t ON t.id = m.turn_id
    WHERE m.id = NEW.message_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
)
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER message_lints_insert BEFORE INSERT ON message_lints
WHEN EXISTS (
    SELECT 1 FROM messages m JOIN places p ON p.turn_id = m.turn_id JOIN turns t ON t.id = m.turn_id
    WHERE m.id = NEW.message_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
)
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER message_codeblocks_insert BEFORE INSERT ON message_codeblocks
WHEN EXISTS (
    SELECT 1 FROM messages m JOIN places p ON p.turn_id = m.turn_id JOIN turns t ON t.id = m.turn_id
    WHERE m.id = NEW.message_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
)
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER messages_moved BEFORE UPDATE OF turn_id ON messages
WHEN EXISTS (SELECT 1 FROM places p WHERE p.turn_id = NEW.turn_id)
    AND EXISTS (
        SELECT 1 FROM turns t
        WHERE t.id = NEW.turn_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
    )
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER tool_calls_moved BEFORE UPDATE OF turn_id ON tool_calls
WHEN EXISTS (SELECT 1 FROM places p WHERE p.turn_id = NEW.turn_id)
    AND EXISTS (
        SELECT 1 FROM turns t
        WHERE t.id = NEW.turn_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
    )
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER message_files_moved BEFORE UPDATE OF message_id ON message_files
WHEN EXISTS (
    SELECT 1 FROM messages m JOIN places p ON p.turn_id = m.turn_id JOIN turns t ON t.id = m.turn_id
    WHERE m.id = NEW.message_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
)
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER message_lints_moved BEFORE UPDATE OF message_id ON message_lints
WHEN EXISTS (
    SELECT 1 FROM messages m JOIN places p ON p.turn_id = m.turn_id JOIN turns t ON t.id = m.turn_id
    WHERE m.id = NEW.message_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
)
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER message_codeblocks_moved BEFORE UPDATE OF message_id ON message_codeblocks
WHEN EXISTS (
    SELECT 1 FROM messages m JOIN places p ON p.turn_id = m.turn_id JOIN turns t ON t.id = m.turn_id
    WHERE m.id = NEW.message_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
)
BEGIN SELECT RAISE(ABORT, 'guard: nothing is added to a sealed turn'); END;

CREATE TRIGGER messages_update BEFORE UPDATE ON messages
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = OLD.turn_id AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
) AND (
    NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL) OR (
        NEW.id, NEW.turn_id, NEW.role, NEW.source, NEW.sequence, NEW.created_at, NEW.tool_call_id,
        NEW.has_details, NEW.task_id, NEW.timestamp
    ) IS NOT (
        OLD.id, OLD.turn_id, OLD.role, OLD.source, OLD.sequence, OLD.created_at, OLD.tool_call_id,
        OLD.has_details, OLD.task_id, OLD.timestamp
    )
)
BEGIN SELECT RAISE(ABORT, 'guard: messages do not change'); END;

CREATE TRIGGER compactions_update BEFORE UPDATE ON compactions
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = OLD.turn_id AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
) AND (
    NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL) OR (
        NEW.turn_id, NEW.summarized_through_turn_id, NEW.first_kept_turn_id, NEW.turns_summarized,
        NEW.compaction_type, NEW.model, NEW.provider, NEW.tokens_before, NEW.tokens_after,
        NEW.summary_tokens, NEW.summarization_input_tokens, NEW.summarization_output_tokens,
        NEW.duration_ms, NEW.trigger
    ) IS NOT (
        OLD.turn_id, OLD.summarized_through_turn_id, OLD.first_kept_turn_id, OLD.turns_summarized,
        OLD.compaction_type, OLD.model, OLD.provider, OLD.tokens_before, OLD.tokens_after,
        OLD.summary_tokens, OLD.summarization_input_tokens, OLD.summarization_output_tokens,
        OLD.duration_ms, OLD.trigger
    )
)
BEGIN SELECT RAISE(ABORT, 'guard: compactions do not change'); END;

CREATE TRIGGER tool_calls_update BEFORE UPDATE ON tool_calls
WHEN EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = OLD.turn_id) AND (
    NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL) OR (
        NEW.id, NEW.turn_id, NEW.message_id, NEW.tool_name, NEW.tool_number, NEW.status,
        NEW.source_status, NEW.spawned_session_label, NEW.started_at, NEW.completed_at, NEW.sequence
    ) IS NOT (
        OLD.id, OLD.turn_id, OLD.message_id, OLD.tool_name, OLD.tool_number, OLD.status,
        OLD.source_status, OLD.spawned_session_label, OLD.started_at, OLD.completed_at, OLD.sequence
    )
)
BEGIN SELECT RAISE(ABORT, 'guard: tool calls of a sealed turn do not change'); END;

CREATE TRIGGER messages_delete BEFORE DELETE ON messages
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = OLD.turn_id AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
)
AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: messages are never deleted'); END;

CREATE TRIGGER tool_calls_delete BEFORE DELETE ON tool_calls
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = OLD.turn_id AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
)
AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: tool_calls are never deleted'); END;

CREATE TRIGGER compactions_delete BEFORE DELETE ON compactions
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = OLD.turn_id AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
)
AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: compactions are never deleted'); END;

CREATE TRIGGER message_files_update BEFORE UPDATE ON message_files
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = (SELECT m.turn_id FROM messages m WHERE m.id = OLD.message_id) AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
) AND (
    NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL) OR (
        NEW.id, NEW.message_id, NEW.kind, NEW.line_start, NEW.line_end
    ) IS NOT (
        OLD.id, OLD.message_id, OLD.kind, OLD.line_start, OLD.line_end
    )
)
BEGIN SELECT RAISE(ABORT, 'guard: message_files do not change'); END;

CREATE TRIGGER message_files_delete BEFORE DELETE ON message_files
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = (SELECT m.turn_id FROM messages m WHERE m.id = OLD.message_id) AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
)
AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: message_files do not change'); END;

CREATE TRIGGER message_lints_update BEFORE UPDATE ON message_lints
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = (SELECT m.turn_id FROM messages m WHERE m.id = OLD.message_id) AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
) AND (
    NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL) OR (
        NEW.id, NEW.message_id, NEW.lint_source, NEW.start_line, NEW.start_col, NEW.end_line,
        NEW.end_col, NEW.severity
    ) IS NOT (
        OLD.id, OLD.message_id, OLD.lint_source, OLD.start_line, OLD.start_col, OLD.end_line,
        OLD.end_col, OLD.severity
    )
)
BEGIN SELECT RAISE(ABORT, 'guard: message_lints do not change'); END;

CREATE TRIGGER message_lints_delete BEFORE DELETE ON message_lints
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = (SELECT m.turn_id FROM messages m WHERE m.id = OLD.message_id) AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
)
AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: message_lints do not change'); END;

CREATE TRIGGER message_codeblocks_update BEFORE UPDATE ON message_codeblocks
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = (SELECT m.turn_id FROM messages m WHERE m.id = OLD.message_id) AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
) AND (
    NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL) OR (
        NEW.id, NEW.message_id, NEW.idx, NEW.language, NEW.line_start, NEW.line_end
    ) IS NOT (
        OLD.id, OLD.message_id, OLD.idx, OLD.language, OLD.line_start, OLD.line_end
    )
)
BEGIN SELECT RAISE(ABORT, 'guard: message_codeblocks do not change'); END;

CREATE TRIGGER message_codeblocks_delete BEFORE DELETE ON message_codeblocks
WHEN EXISTS (
    SELECT 1 FROM turns t WHERE t.id = (SELECT m.turn_id FROM messages m WHERE m.id = OLD.message_id) AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
)
AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: message_codeblocks do not change'); END;

-- A line may only follow the records of an imported turn into the one that has them now.
CREATE TRIGGER session_history_update BEFORE UPDATE OF id, thread_id, changed_at, reason
ON session_history
WHEN NEW.id <> OLD.id
    OR NEW.changed_at <> OLD.changed_at OR NEW.reason <> OLD.reason OR NEW.thread_id IS NULL
    OR NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = OLD.thread_id AND t.projected = 1)
    OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = OLD.thread_id)
BEGIN SELECT RAISE(ABORT, 'guard: session_history only grows'); END;

-- It follows its session to a new label.
CREATE TRIGGER session_history_label BEFORE UPDATE OF session_label ON session_history
WHEN NOT EXISTS (
    SELECT 1 FROM names n
    WHERE n.name = OLD.session_label AND n.session_label = NEW.session_label AND n.reason = 'rename'
)
BEGIN SELECT RAISE(ABORT, 'guard: session_history only grows'); END;

CREATE TRIGGER session_history_delete BEFORE DELETE ON session_history
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: session_history only grows'); END;

CREATE TRIGGER system_prompts_update BEFORE UPDATE ON system_prompts
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL)
    OR NEW.hash IS NOT OLD.hash
BEGIN SELECT RAISE(ABORT, 'guard: system_prompts only grows'); END;

CREATE TRIGGER system_prompts_delete BEFORE DELETE ON system_prompts
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: system_prompts only grows'); END;

CREATE TRIGGER source_blocks_update BEFORE UPDATE ON source_blocks
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL)
    OR (NEW.file_id, NEW.start, NEW.length, NEW.base_file_id, NEW.base_length)
    IS NOT (OLD.file_id, OLD.start, OLD.length, OLD.base_file_id, OLD.base_length)
BEGIN SELECT RAISE(ABORT, 'guard: source records do not change'); END;

CREATE TRIGGER source_blocks_delete BEFORE DELETE ON source_blocks
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: source records are never deleted'); END;

CREATE TRIGGER source_files_delete BEFORE DELETE ON source_files
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: source records are never deleted'); END;

CREATE TRIGGER bus_tasks_update BEFORE UPDATE OF
    id, parent_task_id, system_prompt_hash, created_at, session_label
ON bus_tasks
BEGIN SELECT RAISE(ABORT, 'guard: of a task only its completion status changes'); END;

CREATE TRIGGER bus_tasks_delete BEFORE DELETE ON bus_tasks
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: tasks are never deleted'); END;

CREATE TRIGGER bus_messages_update BEFORE UPDATE OF
    position, id, task_id, role, content, timestamp, partial
ON bus_messages
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL)
    OR (NEW.position, NEW.id, NEW.task_id, NEW.role, NEW.timestamp, NEW.partial)
    IS NOT (OLD.position, OLD.id, OLD.task_id, OLD.role, OLD.timestamp, OLD.partial)
BEGIN SELECT RAISE(ABORT, 'guard: messages of a task do not change'); END;

CREATE TRIGGER bus_messages_delete BEFORE DELETE ON bus_messages
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: messages of a task are never deleted'); END;

CREATE TRIGGER bus_calls_update BEFORE UPDATE OF
    position, id, task_id, ability_name, parameters, created_at, start_message_id
ON bus_calls
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL)
    OR (NEW.position, NEW.id, NEW.task_id, NEW.ability_name, NEW.created_at, NEW.start_message_id)
    IS NOT (OLD.position, OLD.id, OLD.task_id, OLD.ability_name, OLD.created_at, OLD.start_message_id)
BEGIN SELECT RAISE(ABORT, 'guard: of a call only status, details and end change'); END;

CREATE TRIGGER bus_calls_delete BEFORE DELETE ON bus_calls
WHEN NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: calls of a task are never deleted'); END;

CREATE TRIGGER redactions_update BEFORE UPDATE OF id, reason, actor, selection_json, started_at ON redactions
BEGIN SELECT RAISE(ABORT, 'guard: redactions do not change'); END;

CREATE TRIGGER redactions_delete BEFORE DELETE ON redactions
BEGIN SELECT RAISE(ABORT, 'guard: redactions are never deleted'); END;

-- Except under a former label: the session goes on under another.
CREATE TRIGGER sessions_delete BEFORE DELETE ON sessions
WHEN NOT EXISTS (
    SELECT 1 FROM names n
    WHERE n.name = OLD.label AND n.session_label <> OLD.label AND n.reason = 'rename'
)
AND NOT EXISTS (SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges = 1)
BEGIN SELECT RAISE(ABORT, 'guard: sessions are archived, never deleted'); END;

-- An alias points at a session that stands for itself, so chains cannot form.
CREATE TRIGGER names_insert BEFORE INSERT ON names
WHEN NEW.name <> NEW.session_label
AND NOT EXISTS (
    SELECT 1 FROM names n WHERE n.name = NEW.session_label AND n.session_label = NEW.session_label
)
BEGIN SELECT RAISE(ABORT, 'guard: an alias must point at a canonical session'); END;

CREATE TRIGGER names_update BEFORE UPDATE ON names
WHEN (NEW.name <> NEW.session_label
AND NOT EXISTS (
    SELECT 1 FROM names n WHERE n.name = NEW.session_label AND n.session_label = NEW.session_label
))
OR (
    OLD.name = OLD.session_label AND NEW.session_label <> OLD.session_label
    AND EXISTS (SELECT 1 FROM names n WHERE n.session_label = OLD.name AND n.name <> OLD.name)
)
BEGIN SELECT RAISE(ABORT, 'guard: an alias must point at a canonical session'); END;

-- The log of evidence only grows. A leaf may get its position, and a redaction takes away what opens it.
CREATE TRIGGER evidence_update BEFORE UPDATE ON evidence
WHEN (NEW.position <> OLD.position AND (OLD.position > 0 OR NEW.position < 0))
    OR NEW.kind <> OLD.kind OR NEW.subject <> OLD.subject OR NEW.move_id IS NOT OLD.move_id
    OR NEW.hash <> OLD.hash OR NEW.payload IS NOT OLD.payload
BEGIN SELECT RAISE(ABORT, 'guard: the log of evidence only grows'); END;

CREATE TRIGGER evidence_delete BEFORE DELETE ON evidence
BEGIN SELECT RAISE(ABORT, 'guard: the log of evidence only grows'); END;

CREATE TRIGGER evidence_checkpoints_update BEFORE UPDATE ON evidence_checkpoints
BEGIN SELECT RAISE(ABORT, 'guard: checkpoints do not change'); END;

CREATE TRIGGER evidence_checkpoints_delete BEFORE DELETE ON evidence_checkpoints
BEGIN SELECT RAISE(ABORT, 'guard: checkpoints do not change'); END;

-- A day's sums count no longer once one of its turns changed. Their calls change with their turn.
CREATE TRIGGER summaries_insert AFTER INSERT ON turns
WHEN EXISTS (SELECT 1 FROM summary_days d WHERE d.day = NEW.started_at / 86400000)
BEGIN DELETE FROM summary_days WHERE day = NEW.started_at / 86400000; END;

CREATE TRIGGER summaries_update AFTER UPDATE OF
    turn_type, status, started_at, model, provider, workspace_path, input_tokens, output_tokens,
    cached_input_tokens, cache_write_tokens, long_cache_write_tokens, reasoning_tokens, total_tokens,
    tool_call_count
ON turns
WHEN EXISTS (
    SELECT 1 FROM summary_days d
    WHERE d.day IN (NEW.started_at / 86400000, OLD.started_at / 86400000)
)
BEGIN
    DELETE FROM summary_days
    WHERE day IN (NEW.started_at / 86400000, OLD.started_at / 86400000);
END;

CREATE TRIGGER summaries_delete AFTER DELETE ON turns
BEGIN DELETE FROM summary_days WHERE day = OLD.started_at / 86400000; END;
