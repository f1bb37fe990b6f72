-- Views that carry the names of the specification over leaner tables. Recreated after every migration.
-- Beside views.postgres.sql; they differ in how a list of ids is made and walked.

-- ancestry is computed only when it is selected: for one turn it costs its depth.
CREATE VIEW threads AS
SELECT
    p.turn_id,
    (
        WITH RECURSIVE chain (segment_id, upto) AS (
            SELECT p.segment_id, p.depth
            UNION ALL
            SELECT s.parent_id, s.fork_depth
            FROM chain JOIN segments s ON s.id = chain.segment_id
            WHERE s.parent_id IS NOT NULL
        )
        SELECT json_group_array(turn_id) FROM (
            SELECT x.turn_id
            FROM chain JOIN places x ON x.segment_id = chain.segment_id AND x.depth <= chain.upto
            ORDER BY x.depth
        )
    ) AS ancestry,
    p.total_tokens, p.depth, p.persona_id, p.system_prompt_hash, p.thread_key,
    p.input_tokens, p.output_tokens, p.cached_input_tokens, p.cache_write_tokens,
    p.reasoning_tokens, p.compaction_count, p.compaction_turn_id, p.model, p.provider
FROM places p;

-- Turns that never change again: native ones once sealed, projected ones a native turn stands on.
CREATE VIEW frozen_turns AS
SELECT t.id FROM turns t
WHERE t.status IN ('completed', 'failed')
AND (
    t.projected = 0
    OR EXISTS (
        SELECT 1 FROM places p JOIN segments s ON s.id = p.segment_id
        WHERE p.turn_id = t.id AND p.depth <= s.frozen_depth
    )
);

-- Other names of sessions.
CREATE VIEW session_aliases AS
SELECT name AS alias, session_label, created_at, reason FROM names WHERE name <> session_label;

-- A session is known by the id its source gave it, else by its label. Its project is named by the
-- source, or after the folder it works in. The context it used is what the source says, or what its
-- last turn sent and received, which includes all turns before it.
CREATE VIEW agent_sessions AS
SELECT
    s.id, s.source, s.model,
    COALESCE(s.project, replace(
        rtrim(replace(s.workspace_path, '\', '/'), '/'),
        rtrim(rtrim(replace(s.workspace_path, '\', '/'), '/'), replace(replace(s.workspace_path, '\', '/'), '/', '')),
        ''
    )) AS project,
    s.created_at, s.message_count, s.parent_session_id, s.parent_message_id, s.tool_call_id,
    s.task_description, s.task_status, s.is_subagent, s.context_token_limit, s.context_tokens_used,
    s.is_agentic, s.force_mode, s.workspace_path, s.session_label
FROM (
    SELECT
        COALESCE(s.origin_session_id, s.label) AS id, COALESCE(s.origin, 'native') AS source, p.model,
        CASE WHEN json_valid(s.metadata_json) THEN json_extract(s.metadata_json, '$.project') END AS project,
        s.created_at,
        (
            SELECT count(*) FROM json_each((SELECT ancestry FROM threads t WHERE t.turn_id = s.thread_id)) a
            JOIN messages m ON m.turn_id = a.value
        ) AS message_count,
        COALESCE(parent.origin_session_id, parent.label) AS parent_session_id,
        c.message_id AS parent_message_id,
        s.spawn_tool_call_id AS tool_call_id,
        s.task_description, s.task_status, s.is_subagent,
        CASE WHEN json_valid(s.metadata_json) THEN json_extract(s.metadata_json, '$.context_token_limit') END AS context_token_limit,
        COALESCE(
            CASE WHEN json_valid(s.metadata_json) THEN json_extract(s.metadata_json, '$.context_tokens_used') END,
            k.tokens_after, h.input_tokens + COALESCE(h.output_tokens, 0)
        ) AS context_tokens_used,
        CASE WHEN json_valid(s.metadata_json) THEN json_extract(s.metadata_json, '$.is_agentic') END AS is_agentic,
        CASE WHEN json_valid(s.metadata_json) THEN json_extract(s.metadata_json, '$.force_mode') END AS force_mode,
        COALESCE(
            CASE WHEN json_valid(s.metadata_json) THEN json_extract(s.metadata_json, '$.workspace_path') END,
            h.workspace_path
        ) AS workspace_path,
        s.label AS session_label
    FROM sessions s
    LEFT JOIN sessions parent ON parent.label = s.parent_session_label
    LEFT JOIN places p ON p.turn_id = s.thread_id
    LEFT JOIN turns h ON h.id = s.thread_id
    LEFT JOIN compactions k ON k.turn_id = s.thread_id
    LEFT JOIN tool_calls c ON c.turn_id = s.parent_turn_id AND c.id = s.spawn_tool_call_id
) AS s;

-- A message stands once in every session whose thread holds it.
CREATE VIEW agent_messages AS
SELECT
    m.id, COALESCE(s.origin_session_id, s.label) AS session_id, m.role, m.content,
    row_number() OVER (PARTITION BY COALESCE(s.origin_session_id, s.label), s.label ORDER BY a.key, m.sequence) - 1 AS sequence,
    m.created_at AS timestamp,
    CASE WHEN json_valid(m.metadata_json) THEN json_extract(m.metadata_json, '$.checkpointId') END AS checkpoint_id,
    CASE WHEN json_valid(m.metadata_json) THEN json_extract(m.metadata_json, '$.isAgentic') END AS is_agentic,
    CASE WHEN json_valid(m.metadata_json) THEN json_extract(m.metadata_json, '$.isPlanExecution') END AS is_plan_execution,
    m.context_json,
    CASE WHEN json_valid(m.metadata_json) THEN json_extract(m.metadata_json, '$.cursorRules') END AS cursor_rules_json,
    m.metadata_json, m.thinking, m.turn_id
FROM sessions s
JOIN json_each((SELECT ancestry FROM threads t WHERE t.turn_id = s.thread_id)) a
JOIN messages m ON m.turn_id = a.value;

-- One row per turn: with one row per session, a recursive query over parents would double at every level.
-- A turn in several sessions names the one that reached it first; one that no head ever pointed to,
-- the oldest whose thread holds it.
CREATE VIEW agent_turns AS
SELECT
    t.id,
    COALESCE(
        (
            SELECT COALESCE(s.origin_session_id, s.label)
            FROM session_history h JOIN sessions s ON s.label = h.session_label
            WHERE h.thread_id = t.id ORDER BY h.id LIMIT 1
        ),
        (
            WITH RECURSIVE tail (segment_id, from_depth) AS (
                SELECT x.segment_id, x.depth FROM places x WHERE x.turn_id = t.id
                UNION ALL
                SELECT g.id, g.fork_depth + 1 FROM tail
                JOIN segments g ON g.parent_id = tail.segment_id
                AND g.fork_depth >= tail.from_depth
            )
            SELECT COALESCE(s.origin_session_id, s.label)
            FROM tail
            JOIN places x ON x.segment_id = tail.segment_id AND x.depth >= tail.from_depth
            JOIN sessions s ON s.thread_id = x.turn_id
            ORDER BY s.created_at, s.label LIMIT 1
        )
    ) AS session_id,
    t.parent_turn_id, t.query_message_ids, t.response_message_id, t.model,
    t.total_tokens AS token_count, COALESCE(t.completed_at, t.started_at) AS timestamp,
    t.has_children, t.tool_call_count
FROM turns t;

-- The tool calls of each session's thread.
CREATE VIEW agent_tool_calls AS
SELECT
    c.id, c.message_id, COALESCE(s.origin_session_id, s.label) AS session_id, c.tool_name,
    c.tool_number, c.params_json, c.result_json, c.status,
    (SELECT COALESCE(x.origin_session_id, x.label) FROM sessions x WHERE x.label = c.spawned_session_label) AS child_session_id,
    c.started_at, c.completed_at, c.turn_id
FROM sessions s
JOIN json_each((SELECT ancestry FROM threads t WHERE t.turn_id = s.thread_id)) a
JOIN tool_calls c ON c.turn_id = a.value;

-- Tasks of the bus with the columns of the specification.
CREATE VIEW tasks AS
SELECT
    t.id, t.parent_task_id, t.completion_status, p.content AS system_prompt, t.created_at,
    t.updated_at
FROM bus_tasks t JOIN system_prompts p ON p.hash = t.system_prompt_hash;

-- Calls of the bus with the columns of the specification.
CREATE VIEW calls AS
SELECT
    id, task_id, ability_name, parameters, status, details, created_at, updated_at,
    start_message_id, end_message_id
FROM bus_calls;

-- Messages of tasks that are complete, with the columns of the specification.
CREATE VIEW task_messages AS
SELECT id, task_id, role, content, timestamp, position FROM bus_messages WHERE partial = 0;

-- XML that harnesses and models put into messages: tool calls and reminders are removed, and slash
-- commands read as they were typed. Text in other tags was written by somebody.
CREATE VIEW harness_tags AS
WITH tags (number, name, treatment) AS (VALUES
    (1, 'system-reminder', 'remove'),
    (2, 'local-command-caveat', 'remove'),
    (3, 'local-command-stdout', 'remove'),
    (4, 'command-message', 'remove'),
    (5, 'environment_context', 'remove'),
    (6, 'environment_details', 'remove'),
    (7, 'user_instructions', 'remove'),
    (8, 'additional_data', 'remove'),
    (9, 'ide_opened_file', 'remove'),
    (10, 'ide_selection', 'remove'),
    (11, 'task-notification', 'remove'),
    (12, 'agent-notification', 'remove'),
    (13, 'bash-notification', 'remove'),
    (14, 'function_calls', 'remove'),
    (15, 'antml:function_calls', 'remove'),
    (16, 'function_results', 'remove'),
    (17, 'antml:function_results', 'remove'),
    (18, 'command-name', 'unwrap'),
    (19, 'command-args', 'append')
)
SELECT number, name, treatment FROM tags;

-- What was put into words, without what a harness marked as its own. A text is split where a tag
-- opens; what is closed within its piece is removed, with the space behind it, or loses its tags.
CREATE VIEW spoken AS
SELECT * FROM (
    SELECT
        m.turn_id, m.id, m.role, m.sequence,
        trim(CASE WHEN instr(m.content, '</') = 0 OR NOT EXISTS (
            SELECT 1 FROM harness_tags h WHERE instr(m.content, '</' || h.name || '>') > 0
        ) THEN m.content ELSE (
            WITH RECURSIVE stripped (number, text) AS (
                SELECT 0, m.content
                UNION ALL
                SELECT h.number, CASE WHEN instr(s.text, '</' || h.name || '>') = 0 THEN s.text ELSE (
                    SELECT group_concat(
                        CASE h.treatment WHEN 'append' THEN rtrim(piece.text, char(9, 10, 11, 12, 13, 32))
                        ELSE piece.text END, ''
                    )
                    FROM (
                        SELECT part.key AS number, CASE
                            WHEN part.key = 0 THEN part.value
                            WHEN instr(part.value, '</' || h.name || '>') = 0 OR substr(part.value, 1, 1) NOT IN ('>', ' ')
                            THEN '<' || h.name || part.value
                            WHEN h.treatment = 'remove'
                            THEN ltrim(substr(part.value, instr(part.value, '</' || h.name || '>') + length(h.name) + 3), char(9, 10, 11, 12, 13, 32))
                            ELSE CASE WHEN h.treatment = 'append' AND instr(part.value, '</' || h.name || '>') > 2 THEN ' ' ELSE '' END
                                || substr(part.value, 2, instr(part.value, '</' || h.name || '>') - 2)
                                || substr(part.value, instr(part.value, '</' || h.name || '>') + length(h.name) + 3)
                            END AS text
                        FROM json_each(
                            '[' || replace(json_quote(s.text), '<' || h.name, '","') || ']'
                        ) part ORDER BY part.key
                    ) AS piece
                ) END
                FROM stripped s JOIN harness_tags h ON h.number = s.number + 1
            )
            SELECT stripped.text FROM stripped ORDER BY stripped.number DESC LIMIT 1
        ) END, char(9, 10, 11, 12, 13, 32)) AS content
    FROM messages m
    WHERE m.role IN ('user', 'assistant') AND m.content <> '' AND COALESCE(
        CASE WHEN m.metadata_json LIKE '%"meta"%' AND json_valid(m.metadata_json)
        THEN json_type(m.metadata_json, '$.meta') END,
        ''
    ) <> 'true'
) AS words
WHERE content <> '';

-- What was said, one row for each side of a turn, without tools. Query it by
-- thread_id (the turn), or for all.
CREATE VIEW events AS
SELECT
    t.id || ':in' AS id, t.started_at AS timestamp,
    COALESCE((
        SELECT f.source FROM turn_sources x JOIN source_files f ON f.id = x.file_id
        WHERE x.turn_id = t.id ORDER BY f.id LIMIT 1
    ), 'native') AS channel,
    'inbound' AS direction,
    (
        SELECT group_concat(said.content, char(10) || char(10))
        FROM (
            SELECT m.content FROM spoken m
            WHERE m.turn_id = t.id AND m.role = 'user' ORDER BY m.sequence
        ) AS said
    ) AS content,
    t.id AS thread_id, 'agents-ledger' AS source_adapter,
    (
        SELECT m.id FROM spoken m
        WHERE m.turn_id = t.id AND m.role = 'user' ORDER BY m.sequence LIMIT 1
    ) AS source_id,
    json_object('status', t.status, 'workspace_path', t.workspace_path) AS metadata_json
FROM turns t
WHERE EXISTS (
    SELECT 1 FROM spoken m WHERE m.turn_id = t.id AND m.role = 'user'
)
UNION ALL
SELECT
    t.id || ':out', COALESCE(t.completed_at, t.started_at),
    COALESCE((
        SELECT f.source FROM turn_sources x JOIN source_files f ON f.id = x.file_id
        WHERE x.turn_id = t.id ORDER BY f.id LIMIT 1
    ), 'native'),
    'outbound',
    (
        SELECT group_concat(said.content, char(10) || char(10))
        FROM (
            SELECT m.content FROM spoken m
            WHERE m.turn_id = t.id AND m.role = 'assistant' ORDER BY m.sequence
        ) AS said
    ),
    t.id, 'agents-ledger',
    COALESCE(t.response_message_id, (
        SELECT m.id FROM spoken m
        WHERE m.turn_id = t.id AND m.role = 'assistant'
        ORDER BY m.sequence DESC LIMIT 1
    )),
    json_object('status', t.status, 'model', t.model)
FROM turns t
WHERE EXISTS (
    SELECT 1 FROM spoken m WHERE m.turn_id = t.id AND m.role = 'assistant'
);
