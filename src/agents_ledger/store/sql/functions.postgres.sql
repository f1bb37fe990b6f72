-- What PostgreSQL does in one call where SQLite runs statement by statement. Made anew after every migration.
-- A function does what the verb of its name does when nothing stands in the way. What it does not return it did not
-- write: the verb then runs statement by statement, and says why it cannot. An error undoes the whole call.

-- A plan is made once in a session, perhaps while the tables are tiny: each row is looked up by its key in a subquery
-- (OFFSET 0 keeps it one), which no plan can turn into reading a table whole.

-- An assignment of an expression costs a fifth of a statement: settings and helpers are called that way.

-- The settings of a transaction that writes (store/postgres/engine.py), and whether the schema is the caller's: a
-- migration waits for the lock. The caller has set the search path.
CREATE FUNCTION begin_call(number BIGINT) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    settings TEXT;
BEGIN
    settings := concat(
        set_config('enable_seqscan', 'off', TRUE), set_config('jit', 'off', TRUE),
        set_config('plan_cache_mode', 'force_generic_plan', TRUE),
        set_config('lock_timeout', '1s', TRUE)
    );
    PERFORM pg_advisory_xact_lock_shared(hashtext('agents_ledger:' || current_schema()));
    RETURN number = (SELECT max(m.number) FROM schema_migrations m);
END $$;

-- Messages, tool calls and outcomes of some of the turns. An outcome of a call that has one undoes the whole call.
CREATE FUNCTION write_steps(ids TEXT[], new_messages JSON, new_calls JSON, outcomes JSON)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    o RECORD;
BEGIN
    IF new_messages IS NOT NULL THEN
        INSERT INTO messages (
            id, turn_id, role, content, source, sequence, created_at, thinking, context_json,
            metadata_json, tool_call_id
        )
        SELECT r.* FROM json_to_recordset(new_messages) AS r (
            id TEXT, turn_id TEXT, role TEXT, content TEXT, source TEXT, sequence BIGINT,
            created_at BIGINT, thinking TEXT, context_json TEXT, metadata_json TEXT,
            tool_call_id TEXT
        ) WHERE r.turn_id = ANY (ids);
    END IF;
    IF new_calls IS NOT NULL THEN
        INSERT INTO tool_calls (
            id, turn_id, message_id, tool_name, tool_number, params_json, result_json, error,
            status, source_status, started_at, completed_at, sequence
        )
        SELECT r.* FROM json_to_recordset(new_calls) AS r (
            id TEXT, turn_id TEXT, message_id TEXT, tool_name TEXT, tool_number BIGINT,
            params_json TEXT, result_json TEXT, error TEXT, status TEXT, source_status TEXT,
            started_at BIGINT, completed_at BIGINT, sequence BIGINT
        ) WHERE r.turn_id = ANY (ids);
    END IF;
    IF outcomes IS NOT NULL THEN
        FOR o IN SELECT * FROM json_to_recordset(outcomes) AS r (
            turn_id TEXT, id TEXT, status TEXT, result_json TEXT, error TEXT, completed_at BIGINT
        ) WHERE r.turn_id = ANY (ids) LOOP
            UPDATE tool_calls c SET
                status = o.status, result_json = o.result_json, error = o.error,
                completed_at = o.completed_at
            WHERE c.turn_id = o.turn_id AND c.id = o.id AND c.status IN ('pending', 'running');
            IF NOT FOUND THEN RAISE EXCEPTION 'a call is finished already'; END IF;
        END LOOP;
    END IF;
    RETURN TRUE;
END $$;

-- A writer is seen now. One that was seen a moment ago is not locked: others begin turns for it, too.
CREATE FUNCTION renew_writer(writer_id TEXT) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now BIGINT := CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT);
BEGIN
    IF (SELECT w.seen_at FROM writers w WHERE w.id = writer_id) > now - 5000 THEN RETURN FALSE; END IF;
    INSERT INTO writers (id, seen_at) VALUES (writer_id, now)
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at;
    RETURN TRUE;
END $$;

-- A segment of its own behind a turn, as the statement open_segment; returns its number.
CREATE FUNCTION open_segment(behind TEXT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    p places;
    opened BIGINT;
BEGIN
    SELECT * INTO p FROM places WHERE turn_id = behind;
    INSERT INTO segments (parent_id, fork_depth, level, jump_id, jump_depth)
    SELECT
        s.id, p.depth, s.level + 1,
        CASE WHEN j2.id IS NOT NULL AND s.level - j1.level = j1.level - j2.level
            THEN j2.id ELSE s.id END,
        CASE WHEN j2.id IS NOT NULL AND s.level - j1.level = j1.level - j2.level
            THEN j1.jump_depth ELSE p.depth END
    FROM segments s
    LEFT JOIN segments j1 ON j1.id = s.jump_id
    LEFT JOIN segments j2 ON j2.id = j1.jump_id
    WHERE s.id = p.segment_id
    RETURNING id INTO opened;
    RETURN opened;
END $$;

-- What evidence covers, in canonical form (ledger/evidence/canonical.py): a plain value, and the commitment of one that is
-- salted.
CREATE FUNCTION evidence_item(plain TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
SELECT COALESCE(octet_length(plain) || ':' || plain || ';', '-;')
$$;

CREATE FUNCTION evidence_value(seed BYTEA, label TEXT, value TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
SELECT COALESCE(
    encode(sha256(sha256(seed || convert_to(label, 'UTF8')) || convert_to(value, 'UTF8')), 'hex') || ';', '-;'
)
$$;

-- The hash of a sealed turn's content. Of a turn whose messages have files, lints or codeblocks it is NULL.
CREATE FUNCTION evidence_content(turn TEXT, seed BYTEA) RETURNS TEXT LANGUAGE sql STABLE AS $$
SELECT encode(sha256(convert_to(
    'agents-ledger turn 1' || chr(10)
    || (
        SELECT evidence_item(t.id) || evidence_item(t.turn_type) || evidence_item(t.status)
            || evidence_item(t.started_at::TEXT) || evidence_item(t.completed_at::TEXT) || evidence_item(t.role)
            || evidence_item(t.input_tokens::TEXT) || evidence_item(t.output_tokens::TEXT)
            || evidence_item(t.cached_input_tokens::TEXT) || evidence_item(t.cache_write_tokens::TEXT)
            || evidence_item(t.reasoning_tokens::TEXT) || evidence_item(t.total_tokens::TEXT)
            || evidence_item(t.long_cache_write_tokens::TEXT) || evidence_item(t.query_message_ids)
            || evidence_item(t.response_message_id) || evidence_item(t.tool_call_count::TEXT)
            || evidence_value(seed, 'model', t.model) || evidence_value(seed, 'provider', t.provider)
            || evidence_value(seed, 'toolset_name', t.toolset_name)
            || evidence_value(seed, 'tools_available', t.tools_available)
            || evidence_value(seed, 'permissions_granted', t.permissions_granted)
            || evidence_value(seed, 'permissions_used', t.permissions_used)
            || evidence_value(seed, 'source_event_id', t.source_event_id)
            || evidence_value(seed, 'workspace_path', t.workspace_path)
            || evidence_value(seed, 'effective_config_json', t.effective_config_json)
            || evidence_value(seed, 'error', t.error)
        FROM turns t WHERE t.id = turn
    )
    || COALESCE((
        SELECT string_agg(
            'm' || evidence_item(m.id) || evidence_item(m.role) || evidence_item(m.source)
            || evidence_item(m.sequence::TEXT) || evidence_item(m.created_at::TEXT)
            || evidence_item(m.tool_call_id)
            || evidence_value(seed, 'm' || m.sequence || '.content', m.content)
            || evidence_value(seed, 'm' || m.sequence || '.thinking', m.thinking)
            || evidence_value(seed, 'm' || m.sequence || '.context_json', m.context_json)
            || evidence_value(seed, 'm' || m.sequence || '.metadata_json', m.metadata_json),
            '' ORDER BY m.sequence, m.id
        ) FROM messages m WHERE m.turn_id = turn
    ), '')
    || COALESCE((
        SELECT string_agg(
            'c' || evidence_item(c.id) || evidence_item(c.message_id) || evidence_item(c.tool_number::TEXT)
            || evidence_item(c.status) || evidence_item(c.source_status)
            || evidence_item(c.spawned_session_label) || evidence_item(c.started_at::TEXT)
            || evidence_item(c.completed_at::TEXT) || evidence_item(c.sequence::TEXT)
            || evidence_value(seed, 'c' || c.sequence || '.tool_name', c.tool_name)
            || evidence_value(seed, 'c' || c.sequence || '.params_json', c.params_json)
            || evidence_value(seed, 'c' || c.sequence || '.result_json', c.result_json)
            || evidence_value(seed, 'c' || c.sequence || '.error', c.error),
            '' ORDER BY c.sequence, c.id
        ) FROM tool_calls c WHERE c.turn_id = turn
    ), ''), 'UTF8'
)), 'hex')
WHERE (SELECT 1 FROM messages m WHERE m.turn_id = turn AND m.has_details = 1 LIMIT 1) IS NULL
$$;

-- The leaf of a turn, and of the move of a session to it; NULLs where none moved.
CREATE FUNCTION evidence_leaf(turn TEXT, content TEXT, label TEXT, moved_at BIGINT) RETURNS BYTEA LANGUAGE sql STABLE AS $$
SELECT sha256('\x00'::BYTEA || convert_to(
    'agents-ledger turn leaf 1' || chr(10) || evidence_item(content) || evidence_item(t.parent_turn_id)
    || evidence_item(p.system_prompt_hash) || evidence_item(p.persona_id) || evidence_item(p.thread_key)
    || evidence_item(label) || evidence_item(moved_at::TEXT), 'UTF8'
))
FROM turns t JOIN places p ON p.turn_id = t.id WHERE t.id = turn
$$;

-- Finished turns that go on where their sessions stand, as recording.record() writes them, or, of a live writer,
-- turns that begin there, as live.begin() does. Of the tables that a turn is in, those whose rows the caller has come
-- as JSON, NULL where there are none; the rows of the others follow from them.
CREATE FUNCTION record_turns(
    ledger TEXT, number BIGINT, at BIGINT, live_writer TEXT,
    asked JSON, new_turns JSON, new_messages JSON, new_calls JSON, new_prompts JSON
) RETURNS TABLE (turn_id TEXT, parent_id TEXT, turn_depth BIGINT) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    search_path TEXT;
    done BOOLEAN;
    ids TEXT[];
    labels TEXT[];
    parents TEXT[];
    depths BIGINT[];
    personas TEXT[];
    prompts TEXT[];
    placed BIGINT;
BEGIN
    search_path := set_config('search_path', quote_ident(ledger), TRUE);
    IF NOT begin_call(number) THEN RETURN; END IF;

    -- Sessions that nobody else writes to, and whose head has no child behind it. Whoever has to wait for another
    -- writer waits alone; of sessions with one head, the first goes on and the others fork.
    SELECT
        array_agg(x.id), array_agg(x.label), array_agg(x.thread_id), array_agg(x.depth + 1),
        array_agg(x.persona_id), array_agg(x.prompt)
    INTO ids, labels, parents, depths, personas, prompts
    FROM (
        SELECT DISTINCT ON (p.segment_id, p.depth)
            a.id, s.label, s.thread_id, p.depth, COALESCE(s.persona_id, p.persona_id) AS persona_id,
            COALESCE(a.prompt, p.system_prompt_hash) AS prompt
        FROM json_to_recordset(asked)
            AS a (name TEXT, id TEXT, is_expected BOOLEAN, parent TEXT, prompt TEXT)
        CROSS JOIN LATERAL (
            SELECT s.label, s.thread_id, s.persona_id
            FROM names n JOIN sessions s ON s.label = n.session_label
            WHERE n.name = a.name AND s.status = 'active'
            FOR UPDATE OF s SKIP LOCKED
        ) s
        CROSS JOIN LATERAL (SELECT * FROM places p WHERE p.turn_id = s.thread_id OFFSET 0) p
        WHERE (a.is_expected IS NULL OR a.parent = s.thread_id)
            AND (SELECT t.projected FROM turns t WHERE t.id = s.thread_id) = 0
            AND (
                SELECT 1 FROM places q WHERE q.segment_id = p.segment_id AND q.depth = p.depth + 1
            ) IS NULL
            AND (SELECT 1 FROM turns t WHERE t.id = a.id) IS NULL
            AND (SELECT 1 FROM names n WHERE n.name = a.id) IS NULL
    ) x;
    IF ids IS NULL THEN RETURN; END IF;

    IF new_prompts IS NOT NULL THEN
        INSERT INTO system_prompts (hash, content)
        SELECT r.hash, r.content FROM json_to_recordset(new_prompts) AS r (hash TEXT, content TEXT)
        WHERE r.hash = ANY (prompts)
        ON CONFLICT DO NOTHING;
    END IF;

    INSERT INTO turns (
        id, parent_turn_id, status, started_at, completed_at, model, provider, role,
        toolset_name, tools_available, permissions_granted, permissions_used,
        input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, reasoning_tokens,
        total_tokens, query_message_ids, response_message_id, tool_call_count,
        source_event_id, workspace_path, request_hash
    )
    SELECT
        r.id, u.parent, r.status, r.started_at, r.completed_at, r.model, r.provider, r.role,
        r.toolset_name, r.tools_available, r.permissions_granted, r.permissions_used,
        r.input_tokens, r.output_tokens, r.cached_input_tokens, r.cache_write_tokens,
        r.reasoning_tokens, r.total_tokens, r.query_message_ids, r.response_message_id,
        r.tool_call_count, r.source_event_id, r.workspace_path, decode(r.request_hash, 'base64')
    FROM json_to_recordset(new_turns) AS r (
        id TEXT, status TEXT, started_at BIGINT, completed_at BIGINT, model TEXT, provider TEXT,
        role TEXT, toolset_name TEXT, tools_available TEXT, permissions_granted TEXT, permissions_used TEXT,
        input_tokens BIGINT, output_tokens BIGINT, cached_input_tokens BIGINT,
        cache_write_tokens BIGINT, reasoning_tokens BIGINT, total_tokens BIGINT,
        query_message_ids TEXT, response_message_id TEXT, tool_call_count BIGINT,
        source_event_id TEXT, workspace_path TEXT, request_hash TEXT
    ) JOIN unnest(ids, parents) AS u (id, parent) ON u.id = r.id;

    done := write_steps(ids, new_messages, new_calls, NULL);

    UPDATE turns SET has_children = 1 WHERE id = ANY (parents) AND has_children = 0;

    INSERT INTO places (
        segment_id, depth, turn_id, input_tokens, output_tokens, cached_input_tokens,
        cache_write_tokens, reasoning_tokens, total_tokens, compaction_count, compaction_turn_id,
        model, provider, persona_id, system_prompt_hash
    )
    SELECT
        p.segment_id, p.depth + 1, t.id,
        p.input_tokens + COALESCE(t.input_tokens, 0),
        p.output_tokens + COALESCE(t.output_tokens, 0),
        p.cached_input_tokens + COALESCE(t.cached_input_tokens, 0),
        p.cache_write_tokens + COALESCE(t.cache_write_tokens, 0),
        p.reasoning_tokens + COALESCE(t.reasoning_tokens, 0),
        p.total_tokens + COALESCE(t.total_tokens, 0),
        p.compaction_count, p.compaction_turn_id,
        COALESCE(t.model, p.model), COALESCE(t.provider, p.provider), u.persona, u.prompt
    FROM unnest(ids, parents, personas, prompts) AS u (id, parent, persona, prompt)
    CROSS JOIN LATERAL (SELECT * FROM places p WHERE p.turn_id = u.parent OFFSET 0) p
    CROSS JOIN LATERAL (SELECT * FROM turns t WHERE t.id = u.id OFFSET 0) t
    ON CONFLICT (segment_id, depth) DO NOTHING;
    GET DIAGNOSTICS placed = ROW_COUNT;
    IF placed <> cardinality(ids) THEN
        RAISE EXCEPTION 'a turn took another''s place while both were written';
    END IF;

    INSERT INTO search_waiting (turn_id) SELECT unnest(ids);

    IF live_writer IS NULL THEN
        UPDATE sessions s SET thread_id = ids[array_position(labels, s.label)], updated_at = at
        WHERE s.label = ANY (labels);
        INSERT INTO session_history (session_label, thread_id, changed_at, reason)
        SELECT u.label, u.id, at, 'record' FROM unnest(ids, labels) AS u (id, label);
        INSERT INTO evidence (kind, subject, move_id, opening, hash)
        SELECT
            'turn', u.id, (SELECT max(h.id) FROM session_history h WHERE h.session_label = u.label),
            decode(a.seed, 'hex'), evidence_leaf(u.id, a.content, u.label, at)
        FROM unnest(ids, labels) AS u (id, label)
        JOIN json_to_recordset(asked) AS a (id TEXT, seed TEXT, content TEXT) ON a.id = u.id;
    ELSE
        done := renew_writer(live_writer);
        INSERT INTO live_turns (turn_id, writer_id, session_label)
        SELECT u.id, live_writer, u.label FROM unnest(ids, labels) AS u (id, label);
    END IF;
    RETURN QUERY SELECT * FROM unnest(ids, parents, depths);
END $$;

-- Steps of turns that their writers write now, as add_message(), add_steps(), start_call(), finish_call() and stream()
-- of a live turn commit them.
CREATE FUNCTION add_steps(
    ledger TEXT, number BIGINT,
    asked JSON, streamed JSON, new_messages JSON, new_calls JSON, outcomes JSON, pieces JSON
) RETURNS TABLE (turn_id TEXT) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    search_path TEXT;
    done BOOLEAN;
    ids TEXT[];
BEGIN
    search_path := set_config('search_path', quote_ident(ledger), TRUE);
    IF NOT begin_call(number) THEN RETURN; END IF;
    SELECT array_agg(l.turn_id) INTO ids
    FROM json_to_recordset(asked) AS a (turn_id TEXT, writer_id TEXT)
    CROSS JOIN LATERAL (
        SELECT l.turn_id FROM live_turns l
        WHERE l.turn_id = a.turn_id AND l.writer_id = a.writer_id
        FOR UPDATE SKIP LOCKED
    ) l;
    IF ids IS NULL THEN RETURN; END IF;

    -- A message that was streamed takes the place of its pieces.
    IF streamed IS NOT NULL THEN
        DELETE FROM partial_texts p
        WHERE p.turn_id = ANY (ids)
            AND p.turn_id = ANY (ARRAY(SELECT json_array_elements_text(streamed)));
    END IF;
    done := write_steps(ids, new_messages, new_calls, outcomes);
    IF pieces IS NOT NULL THEN
        INSERT INTO partial_texts (turn_id, piece, content)
        SELECT r.turn_id, r.piece, r.content
        FROM json_to_recordset(pieces) AS r (turn_id TEXT, piece BIGINT, content TEXT)
        WHERE r.turn_id = ANY (ids);
        UPDATE turns t SET status = 'streaming' WHERE t.id = ANY (ids) AND t.status = 'pending'
        AND t.id = ANY (ARRAY(
            SELECT r.turn_id FROM json_to_recordset(pieces) AS r (turn_id TEXT)
        ));
    END IF;
    RETURN QUERY SELECT unnest(ids);
END $$;

-- The text that was streamed of a turn, as the statement partials; NULL: none.
CREATE FUNCTION streamed_text(turn TEXT) RETURNS TEXT LANGUAGE sql STABLE AS $$
SELECT NULLIF(string_agg(content, '' ORDER BY piece), '') FROM (
    SELECT content, piece FROM partial_texts WHERE turn_id = turn
    UNION ALL
    SELECT x.content, x.piece
    FROM bus_streams s JOIN bus_stream_texts x ON x.stream_id = s.id
    WHERE s.turn_id = turn
) AS pieces
$$;

-- The last sequence number of a turn and one more.
CREATE FUNCTION next_sequence(turn TEXT) RETURNS BIGINT LANGUAGE sql STABLE AS $$
SELECT 1 + GREATEST(
    -1,
    (SELECT max(sequence) FROM messages WHERE turn_id = turn),
    (SELECT max(sequence) FROM tool_calls WHERE turn_id = turn)
)
$$;

-- Turns are sealed by their writers, as live.seal() does; each is returned with the label of its session, its parent,
-- and the head that the session had. Where the head is no longer the parent, it stays.
CREATE FUNCTION seal_turns(
    ledger TEXT, number BIGINT, at BIGINT,
    asked JSON, new_messages JSON, new_calls JSON, outcomes JSON, closing JSON
) RETURNS TABLE (turn_id TEXT, session_label TEXT, parent_id TEXT, head TEXT) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    search_path TEXT;
    done BOOLEAN;
    ids TEXT[];
    labels TEXT[];
    parents TEXT[];
    heads TEXT[];
    completed TEXT[];
BEGIN
    search_path := set_config('search_path', quote_ident(ledger), TRUE);
    IF NOT begin_call(number) THEN RETURN; END IF;
    -- One turn of each session; whoever has to wait for another writer waits alone.
    SELECT
        array_agg(x.turn_id ORDER BY x.n), array_agg(x.label ORDER BY x.n),
        array_agg(x.parent_turn_id ORDER BY x.n), array_agg(x.thread_id ORDER BY x.n)
    INTO ids, labels, parents, heads
    FROM (
        SELECT DISTINCT ON (s.label) a.n, a.turn_id, s.label, t.parent_turn_id, s.thread_id
        FROM ROWS FROM (json_to_recordset(asked) AS (turn_id TEXT, writer_id TEXT))
            WITH ORDINALITY AS a (turn_id, writer_id, n)
        CROSS JOIN LATERAL (
            SELECT l.session_label FROM live_turns l
            WHERE l.turn_id = a.turn_id AND l.writer_id = a.writer_id
            FOR UPDATE SKIP LOCKED
        ) l
        CROSS JOIN LATERAL (
            SELECT s.label, s.thread_id FROM names n JOIN sessions s ON s.label = n.session_label
            WHERE n.name = l.session_label
            FOR UPDATE OF s SKIP LOCKED
        ) s
        CROSS JOIN LATERAL (SELECT t.parent_turn_id FROM turns t WHERE t.id = a.turn_id OFFSET 0) t
        WHERE (SELECT 1 FROM messages m WHERE m.turn_id = a.turn_id AND m.has_details = 1 LIMIT 1) IS NULL
        ORDER BY s.label, a.n
    ) x;
    IF ids IS NULL THEN RETURN; END IF;

    done := write_steps(ids, new_messages, new_calls, outcomes);
    -- The response, or else what was streamed.
    INSERT INTO messages (
        id, turn_id, role, content, source, sequence, created_at, thinking, context_json,
        metadata_json, tool_call_id
    )
    SELECT
        m.id, m.turn_id, m.role, m.content, m.source, next_sequence(m.turn_id), m.created_at,
        m.thinking, m.context_json, m.metadata_json, m.tool_call_id
    FROM (
        SELECT
            r.id, r.turn_id, r.role, COALESCE(r.content, streamed_text(r.turn_id)) AS content,
            r.source, r.created_at, r.thinking, r.context_json, r.metadata_json, r.tool_call_id
        FROM json_to_recordset(closing) AS r (
            id TEXT, turn_id TEXT, role TEXT, content TEXT, source TEXT, created_at BIGINT,
            thinking TEXT, context_json TEXT, metadata_json TEXT, tool_call_id TEXT
        ) WHERE r.turn_id = ANY (ids)
    ) m
    JOIN json_to_recordset(asked) AS a (turn_id TEXT, is_answered BOOLEAN) ON a.turn_id = m.turn_id
    WHERE a.is_answered OR m.content IS NOT NULL;
    UPDATE tool_calls c SET status = 'cancelled', error = 'no result recorded', completed_at = at
    WHERE c.turn_id = ANY (ids) AND c.status IN ('pending', 'running');

    -- The last change of these turns, and of all that hangs on them.
    UPDATE turns t SET
        status = r.status, completed_at = at, error = r.error,
        model = COALESCE(r.model, t.model), provider = COALESCE(r.provider, t.provider),
        response_message_id = CASE WHEN r.status = 'completed' THEN
            (SELECT m.id FROM messages m WHERE m.id = r.closing_id AND m.turn_id = t.id) END,
        permissions_used = COALESCE(r.permissions_used, t.permissions_used),
        input_tokens = r.input_tokens, output_tokens = r.output_tokens,
        cached_input_tokens = r.cached_input_tokens, cache_write_tokens = r.cache_write_tokens,
        reasoning_tokens = r.reasoning_tokens, total_tokens = r.total_tokens,
        tool_call_count = (SELECT count(*) FROM tool_calls c WHERE c.turn_id = t.id)
    FROM json_to_recordset(asked) AS r (
        turn_id TEXT, status TEXT, error TEXT, model TEXT, provider TEXT, permissions_used TEXT,
        input_tokens BIGINT, output_tokens BIGINT, cached_input_tokens BIGINT,
        cache_write_tokens BIGINT, reasoning_tokens BIGINT, total_tokens BIGINT, closing_id TEXT
    ) WHERE t.id = r.turn_id AND t.id = ANY (ids);
    DELETE FROM partial_texts p WHERE p.turn_id = ANY (ids);
    DELETE FROM live_turns l WHERE l.turn_id = ANY (ids);

    UPDATE places o SET
        input_tokens = COALESCE(p.input_tokens, 0) + COALESCE(t.input_tokens, 0),
        output_tokens = COALESCE(p.output_tokens, 0) + COALESCE(t.output_tokens, 0),
        cached_input_tokens =
            COALESCE(p.cached_input_tokens, 0) + COALESCE(t.cached_input_tokens, 0),
        cache_write_tokens = COALESCE(p.cache_write_tokens, 0) + COALESCE(t.cache_write_tokens, 0),
        reasoning_tokens = COALESCE(p.reasoning_tokens, 0) + COALESCE(t.reasoning_tokens, 0),
        total_tokens = COALESCE(p.total_tokens, 0) + COALESCE(t.total_tokens, 0),
        model = COALESCE(t.model, p.model), provider = COALESCE(t.provider, p.provider)
    FROM unnest(ids, parents) AS u (id, parent)
    CROSS JOIN LATERAL (SELECT * FROM turns t WHERE t.id = u.id OFFSET 0) t
    LEFT JOIN LATERAL (SELECT * FROM places p WHERE p.turn_id = u.parent OFFSET 0) p ON TRUE
    WHERE o.turn_id = u.id AND o.turn_id = ANY (ids);
    -- A failed turn leaves the place behind its parent, for one that completes.
    UPDATE places o SET segment_id = open_segment(u.parent)
    FROM unnest(ids, parents) AS u (id, parent)
    CROSS JOIN LATERAL (SELECT t.status FROM turns t WHERE t.id = u.id OFFSET 0) t
    CROSS JOIN LATERAL (SELECT p.segment_id FROM places p WHERE p.turn_id = u.parent OFFSET 0) p
    WHERE o.turn_id = u.id AND t.status = 'failed' AND o.segment_id = p.segment_id;

    INSERT INTO search_waiting (turn_id) SELECT unnest(ids)
    ON CONFLICT (turn_id) DO UPDATE SET turn_id = excluded.turn_id;

    SELECT array_agg(u.id) INTO completed
    FROM unnest(ids, parents, heads) AS u (id, parent, head)
    WHERE u.parent IS NOT DISTINCT FROM u.head
        AND (SELECT t.status FROM turns t WHERE t.id = u.id) = 'completed';
    UPDATE sessions s SET thread_id = ids[array_position(labels, s.label)], updated_at = at
    WHERE s.label = ANY (labels) AND ids[array_position(labels, s.label)] = ANY (completed);
    INSERT INTO session_history (session_label, thread_id, changed_at, reason)
    SELECT u.label, u.id, at, 'record' FROM unnest(ids, labels) AS u (id, label)
    WHERE u.id = ANY (completed);
    INSERT INTO evidence (kind, subject, move_id, opening, hash)
    SELECT
        'turn', u.id,
        (
            SELECT max(h.id) FROM session_history h
            WHERE h.session_label = u.label AND u.id = ANY (completed)
        ),
        decode(a.seed, 'hex'),
        evidence_leaf(
            u.id, evidence_content(u.id, decode(a.seed, 'hex')),
            CASE WHEN u.id = ANY (completed) THEN u.label END,
            CASE WHEN u.id = ANY (completed) THEN at END
        )
    FROM unnest(ids, labels) AS u (id, label)
    JOIN json_to_recordset(asked) AS a (turn_id TEXT, seed TEXT) ON a.turn_id = u.id;
    RETURN QUERY SELECT * FROM unnest(ids, labels, parents, heads);
END $$;
