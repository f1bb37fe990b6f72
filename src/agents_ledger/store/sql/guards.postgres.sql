-- Guards, as guards.sqlite.sql: what was recorded is not changed, whoever writes. Made anew after every migration.
-- The store turns their word `guard:` into a Refused error. What is inserted in large numbers is looked at once for
-- each statement, in the transition table `added`.

CREATE FUNCTION guard_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'guard: %', TG_ARGV[0]; END $$;

-- What goes through the one door only; TG_ARGV[1] names the texts.
CREATE FUNCTION guard_refuse_or_let() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT guard_lets(TG_OP, to_jsonb(OLD), to_jsonb(NEW), TG_ARGV[1]) THEN
        RAISE EXCEPTION 'guard: %', TG_ARGV[0];
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

-- The one door: a redaction that is not finished, in the transaction that made it.
CREATE FUNCTION guard_door(needs_purge BIGINT) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT EXISTS (
    SELECT 1 FROM redactions r WHERE r.finished_at IS NULL AND r.purges >= needs_purge
) $$;

-- Whether a change goes through it: texts alone, which are named with a comma between them, or rows that go.
CREATE FUNCTION guard_lets(operation TEXT, before JSONB, after JSONB, texts TEXT)
RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT CASE WHEN operation = 'DELETE' THEN guard_door(1)
    ELSE guard_door(0)
        AND before - string_to_array(texts, ',') = after - string_to_array(texts, ',')
END $$;

-- Whether a turn's rows may still be rewritten: only a projection that nothing native stands on.
CREATE FUNCTION guard_fixed(turn TEXT) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT EXISTS (
    SELECT 1 FROM turns t WHERE t.id = turn AND (
        t.projected = 0 OR EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = t.id)
    )
) $$;

-- Whether a turn of ours is sealed. One that is being recorded has no place yet.
CREATE FUNCTION guard_closed(turn TEXT) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT EXISTS (SELECT 1 FROM places p WHERE p.turn_id = turn) AND EXISTS (
    SELECT 1 FROM turns t
    WHERE t.id = turn AND t.projected = 0 AND t.status IN ('completed', 'failed')
) $$;

CREATE FUNCTION guard_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF guard_closed(NEW.turn_id) THEN RAISE EXCEPTION 'guard: nothing is added to a sealed turn'; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_added_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM (SELECT DISTINCT turn_id FROM added) a
        WHERE (
            SELECT 1 FROM turns t
            WHERE t.id = a.turn_id AND t.projected = 0 AND t.status IN ('completed', 'failed')
        ) = 1 AND (SELECT 1 FROM places p WHERE p.turn_id = a.turn_id) = 1
    ) THEN
        RAISE EXCEPTION 'guard: nothing is added to a sealed turn';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION guard_detailed_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM (SELECT DISTINCT message_id FROM added) a
        WHERE guard_closed((SELECT m.turn_id FROM messages m WHERE m.id = a.message_id))
    ) THEN
        RAISE EXCEPTION 'guard: nothing is added to a sealed turn';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION guard_detailed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF guard_closed((SELECT m.turn_id FROM messages m WHERE m.id = NEW.message_id)) THEN
        RAISE EXCEPTION 'guard: nothing is added to a sealed turn';
    END IF;
    RETURN NEW;
END $$;

-- A line may only follow the records of an imported turn into the one that has them now.
CREATE FUNCTION guard_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.changed_at, NEW.reason) <> (OLD.id, OLD.changed_at, OLD.reason)
        OR NEW.thread_id IS NULL OR OLD.thread_id IS NULL OR guard_fixed(OLD.thread_id)
    THEN
        RAISE EXCEPTION 'guard: session_history only grows';
    END IF;
    RETURN NEW;
END $$;

-- It follows its session to a new label.
CREATE FUNCTION guard_history_label() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM names n
        WHERE n.name = OLD.session_label AND n.session_label = NEW.session_label
        AND n.reason = 'rename'
    ) THEN
        RAISE EXCEPTION 'guard: session_history only grows';
    END IF;
    RETURN NEW;
END $$;

-- Except under a former label: the session goes on under another.
CREATE FUNCTION guard_sessions_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM names n
        WHERE n.name = OLD.label AND n.session_label <> OLD.label AND n.reason = 'rename'
    ) AND NOT guard_door(1) THEN
        RAISE EXCEPTION 'guard: sessions are archived, never deleted';
    END IF;
    RETURN OLD;
END $$;

CREATE FUNCTION guard_turns() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = OLD.id)
        AND NOT guard_lets(TG_OP, to_jsonb(OLD), to_jsonb(NEW), TG_ARGV[0])
    THEN
        RAISE EXCEPTION 'guard: a sealed turn does not change';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_turns_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF guard_fixed(OLD.id) AND NOT guard_door(1) THEN
        RAISE EXCEPTION 'guard: turns are never deleted';
    END IF;
    RETURN OLD;
END $$;

CREATE FUNCTION guard_compaction_turns() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM added a
        WHERE (a.turn_type = 'compaction')
            <> ((SELECT c.turn_id FROM compactions c WHERE c.turn_id = a.id) IS NOT NULL)
    ) THEN
        RAISE EXCEPTION 'guard: a compaction turn, and no other, has a compactions row, written first';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION guard_compaction_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM turns t WHERE t.id = NEW.turn_id AND t.turn_type <> 'compaction') THEN
        RAISE EXCEPTION 'guard: only a compaction turn has a compactions row';
    END IF;
    RETURN NEW;
END $$;

-- For tables with a turn_id; TG_ARGV[0] is the sentence, TG_ARGV[1] names the texts.
CREATE FUNCTION guard_of_turn() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF guard_fixed(OLD.turn_id) AND NOT guard_lets(TG_OP, to_jsonb(OLD), to_jsonb(NEW), TG_ARGV[1]) THEN
        RAISE EXCEPTION 'guard: %', TG_ARGV[0];
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_tool_calls() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM frozen_turns f WHERE f.id = OLD.turn_id)
        AND NOT guard_lets(TG_OP, to_jsonb(OLD), to_jsonb(NEW), TG_ARGV[0])
    THEN
        RAISE EXCEPTION 'guard: tool calls of a sealed turn do not change';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_of_message() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF guard_fixed((SELECT m.turn_id FROM messages m WHERE m.id = OLD.message_id))
        AND NOT guard_lets(TG_OP, to_jsonb(OLD), to_jsonb(NEW), TG_ARGV[1])
    THEN
        RAISE EXCEPTION 'guard: %', TG_ARGV[0];
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

-- A leaf may get its position, and a redaction takes away what opens it.
CREATE FUNCTION guard_evidence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.position <> OLD.position AND (OLD.position > 0 OR NEW.position < 0))
        OR (NEW.kind, NEW.subject, NEW.move_id, NEW.hash, NEW.payload)
            IS DISTINCT FROM (OLD.kind, OLD.subject, OLD.move_id, OLD.hash, OLD.payload)
    THEN
        RAISE EXCEPTION 'guard: the log of evidence only grows';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_names() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (
        NEW.name <> NEW.session_label AND NOT EXISTS (
            SELECT 1 FROM names n
            WHERE n.name = NEW.session_label AND n.session_label = NEW.session_label
        )
    ) OR (
        TG_OP = 'UPDATE' AND OLD.name = OLD.session_label
        AND NEW.session_label <> OLD.session_label
        AND EXISTS (SELECT 1 FROM names n WHERE n.session_label = OLD.name AND n.name <> OLD.name)
    ) THEN
        RAISE EXCEPTION 'guard: an alias must point at a canonical session';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER turns_update BEFORE UPDATE OF
    id, parent_turn_id, turn_type, status, started_at, completed_at, model, provider, role,
    toolset_name, tools_available, permissions_granted, permissions_used, input_tokens,
    output_tokens, cached_input_tokens, cache_write_tokens, reasoning_tokens, total_tokens,
    query_message_ids, response_message_id, tool_call_count, source_event_id, workspace_path,
    effective_config_json, error, projected, request_hash, long_cache_write_tokens
ON turns
FOR EACH ROW WHEN (OLD.status = 'completed' OR OLD.status = 'failed')
EXECUTE FUNCTION guard_turns(
    'error,workspace_path,effective_config_json,tools_available,permissions_granted,permissions_used,source_event_id,toolset_name,request_hash,has_children'
);

CREATE TRIGGER turns_children BEFORE UPDATE OF has_children ON turns
FOR EACH ROW WHEN (NEW.has_children < OLD.has_children AND OLD.projected = 0)
EXECUTE FUNCTION guard_refuse('a turn does not lose its children');

CREATE TRIGGER turns_delete BEFORE DELETE ON turns
FOR EACH ROW EXECUTE FUNCTION guard_turns_delete();

CREATE TRIGGER turns_compaction AFTER INSERT ON turns REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION guard_compaction_turns();

CREATE TRIGGER turns_type BEFORE UPDATE OF turn_type ON turns
FOR EACH ROW WHEN (NEW.turn_type <> OLD.turn_type AND OLD.projected = 0)
EXECUTE FUNCTION guard_refuse('a turn does not change its type');

CREATE TRIGGER compactions_insert BEFORE INSERT ON compactions
FOR EACH ROW EXECUTE FUNCTION guard_compaction_row();

CREATE TRIGGER messages_insert AFTER INSERT ON messages REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION guard_added_rows();

CREATE TRIGGER tool_calls_insert AFTER INSERT ON tool_calls REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION guard_added_rows();

CREATE TRIGGER message_files_insert AFTER INSERT ON message_files REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION guard_detailed_rows();

CREATE TRIGGER message_lints_insert AFTER INSERT ON message_lints REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION guard_detailed_rows();

CREATE TRIGGER message_codeblocks_insert AFTER INSERT ON message_codeblocks REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION guard_detailed_rows();

CREATE TRIGGER messages_moved BEFORE UPDATE OF turn_id ON messages
FOR EACH ROW EXECUTE FUNCTION guard_added();

CREATE TRIGGER tool_calls_moved BEFORE UPDATE OF turn_id ON tool_calls
FOR EACH ROW EXECUTE FUNCTION guard_added();

CREATE TRIGGER message_files_moved BEFORE UPDATE OF message_id ON message_files
FOR EACH ROW EXECUTE FUNCTION guard_detailed();

CREATE TRIGGER message_lints_moved BEFORE UPDATE OF message_id ON message_lints
FOR EACH ROW EXECUTE FUNCTION guard_detailed();

CREATE TRIGGER message_codeblocks_moved BEFORE UPDATE OF message_id ON message_codeblocks
FOR EACH ROW EXECUTE FUNCTION guard_detailed();

CREATE TRIGGER messages_update BEFORE UPDATE ON messages
FOR EACH ROW EXECUTE FUNCTION guard_of_turn('messages do not change', 'content,thinking,context_json,metadata_json');

CREATE TRIGGER compactions_update BEFORE UPDATE ON compactions
FOR EACH ROW EXECUTE FUNCTION guard_of_turn('compactions do not change', 'summary,metadata_json');

CREATE TRIGGER tool_calls_update BEFORE UPDATE ON tool_calls
FOR EACH ROW EXECUTE FUNCTION guard_tool_calls('params_json,result_json,error');

CREATE TRIGGER messages_delete BEFORE DELETE ON messages
FOR EACH ROW EXECUTE FUNCTION guard_of_turn('messages are never deleted');

CREATE TRIGGER tool_calls_delete BEFORE DELETE ON tool_calls
FOR EACH ROW EXECUTE FUNCTION guard_of_turn('tool_calls are never deleted');

CREATE TRIGGER compactions_delete BEFORE DELETE ON compactions
FOR EACH ROW EXECUTE FUNCTION guard_of_turn('compactions are never deleted');

CREATE TRIGGER message_files_update BEFORE UPDATE ON message_files
FOR EACH ROW EXECUTE FUNCTION guard_of_message('message_files do not change', 'file_path');

CREATE TRIGGER message_files_delete BEFORE DELETE ON message_files
FOR EACH ROW EXECUTE FUNCTION guard_of_message('message_files do not change');

CREATE TRIGGER message_lints_update BEFORE UPDATE ON message_lints
FOR EACH ROW EXECUTE FUNCTION guard_of_message('message_lints do not change', 'file_path,message');

CREATE TRIGGER message_lints_delete BEFORE DELETE ON message_lints
FOR EACH ROW EXECUTE FUNCTION guard_of_message('message_lints do not change');

CREATE TRIGGER message_codeblocks_update BEFORE UPDATE ON message_codeblocks
FOR EACH ROW EXECUTE FUNCTION guard_of_message('message_codeblocks do not change', 'content,file_path');

CREATE TRIGGER message_codeblocks_delete BEFORE DELETE ON message_codeblocks
FOR EACH ROW EXECUTE FUNCTION guard_of_message('message_codeblocks do not change');

CREATE TRIGGER session_history_update BEFORE UPDATE OF id, thread_id, changed_at, reason
ON session_history
FOR EACH ROW EXECUTE FUNCTION guard_history();

CREATE TRIGGER session_history_label BEFORE UPDATE OF session_label ON session_history
FOR EACH ROW EXECUTE FUNCTION guard_history_label();

CREATE TRIGGER session_history_delete BEFORE DELETE ON session_history
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('session_history only grows');

CREATE TRIGGER system_prompts_update BEFORE UPDATE ON system_prompts
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('system_prompts only grows', 'content');

CREATE TRIGGER system_prompts_delete BEFORE DELETE ON system_prompts
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('system_prompts only grows');

CREATE TRIGGER source_blocks_update BEFORE UPDATE ON source_blocks
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('source records do not change', 'data');

CREATE TRIGGER source_blocks_delete BEFORE DELETE ON source_blocks
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('source records are never deleted');

CREATE TRIGGER source_files_delete BEFORE DELETE ON source_files
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('source records are never deleted');

CREATE TRIGGER bus_tasks_update BEFORE UPDATE OF
    id, parent_task_id, system_prompt_hash, created_at, session_label
ON bus_tasks
FOR EACH ROW EXECUTE FUNCTION guard_refuse('of a task only its completion status changes');

CREATE TRIGGER bus_tasks_delete BEFORE DELETE ON bus_tasks
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('tasks are never deleted');

CREATE TRIGGER bus_messages_update BEFORE UPDATE OF
    position, id, task_id, role, content, timestamp, partial
ON bus_messages
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('messages of a task do not change', 'content');

CREATE TRIGGER bus_messages_delete BEFORE DELETE ON bus_messages
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('messages of a task are never deleted');

CREATE TRIGGER bus_calls_update BEFORE UPDATE OF
    position, id, task_id, ability_name, parameters, created_at, start_message_id
ON bus_calls
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('of a call only status, details and end change', 'parameters');

CREATE TRIGGER bus_calls_delete BEFORE DELETE ON bus_calls
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('calls of a task are never deleted');

CREATE TRIGGER redactions_update BEFORE UPDATE OF id, reason, actor, selection_json, started_at ON redactions
FOR EACH ROW EXECUTE FUNCTION guard_refuse('redactions do not change');

CREATE TRIGGER redactions_delete BEFORE DELETE ON redactions
FOR EACH ROW EXECUTE FUNCTION guard_refuse_or_let('redactions are never deleted');

CREATE TRIGGER sessions_delete BEFORE DELETE ON sessions
FOR EACH ROW EXECUTE FUNCTION guard_sessions_delete();

CREATE TRIGGER names_guard BEFORE INSERT OR UPDATE ON names
FOR EACH ROW EXECUTE FUNCTION guard_names();

-- The log of evidence only grows.
CREATE TRIGGER evidence_update BEFORE UPDATE ON evidence
FOR EACH ROW EXECUTE FUNCTION guard_evidence();

CREATE TRIGGER evidence_delete BEFORE DELETE ON evidence
FOR EACH ROW EXECUTE FUNCTION guard_refuse('the log of evidence only grows');

CREATE TRIGGER evidence_checkpoints_update BEFORE UPDATE ON evidence_checkpoints
FOR EACH ROW EXECUTE FUNCTION guard_refuse('checkpoints do not change');

CREATE TRIGGER evidence_checkpoints_delete BEFORE DELETE ON evidence_checkpoints
FOR EACH ROW EXECUTE FUNCTION guard_refuse('checkpoints do not change');

-- A day's sums count no longer once one of its turns changed. Their calls change with their turn.
-- Turns of today and yesterday are in no sum: they need not wait for who sums up.
CREATE FUNCTION may_be_summed(at BIGINT) RETURNS boolean LANGUAGE sql AS $$
SELECT at / 86400000 < floor(extract(epoch FROM clock_timestamp()) / 86400) - 1
$$;

CREATE FUNCTION forget_summary() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    earliest BIGINT := CASE TG_OP
        WHEN 'INSERT' THEN NEW.started_at
        WHEN 'DELETE' THEN OLD.started_at
        ELSE LEAST(NEW.started_at, OLD.started_at) END;
BEGIN
    IF NOT may_be_summed(earliest) THEN RETURN NULL; END IF;
    PERFORM pg_advisory_xact_lock_shared(hashtext(current_schema() || ' summaries'));
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM summary_days WHERE day = OLD.started_at / 86400000;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        DELETE FROM summary_days WHERE day = NEW.started_at / 86400000;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER summaries_insert AFTER INSERT ON turns
FOR EACH ROW WHEN (may_be_summed(NEW.started_at)) EXECUTE FUNCTION forget_summary();

CREATE TRIGGER summaries_update AFTER UPDATE OF
    turn_type, status, started_at, model, provider, workspace_path, input_tokens, output_tokens,
    cached_input_tokens, cache_write_tokens, long_cache_write_tokens, reasoning_tokens, total_tokens,
    tool_call_count
ON turns
FOR EACH ROW WHEN (may_be_summed(LEAST(NEW.started_at, OLD.started_at)))
EXECUTE FUNCTION forget_summary();

CREATE TRIGGER summaries_delete AFTER DELETE ON turns
FOR EACH ROW EXECUTE FUNCTION forget_summary();
