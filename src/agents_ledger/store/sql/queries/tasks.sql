-- Tasks of the Agent Bus, their messages and calls, and the turns derived from them.

-- task --
SELECT <task_columns> FROM tasks t WHERE t.id = :id;

-- task_state --
-- Its session, the head the bus gave it, its prompt and whether it ended.
SELECT session_label, head_turn_id, system_prompt_hash, completion_status FROM bus_tasks
WHERE id = :id;

-- task_of_session --
SELECT id FROM bus_tasks WHERE session_label = :label;

-- insert_task --
INSERT INTO bus_tasks (
    id, parent_task_id, completion_status, system_prompt_hash, created_at, updated_at,
    session_label, head_turn_id
) VALUES (
    :id, :parent_task_id, :completion_status, :system_prompt_hash, :created_at, :updated_at,
    :session_label, NULL
);

-- update_task --
UPDATE bus_tasks SET completion_status = :completion_status, updated_at = :updated_at
WHERE id = :id;

-- set_task_head --
UPDATE bus_tasks SET head_turn_id = :head_turn_id WHERE id = :id;

-- tasks_by_time --
SELECT <task_columns> FROM tasks t WHERE <task_times> <task_page>;

-- tasks_active --
SELECT <task_columns> FROM tasks t WHERE t.completion_status IS NULL AND <task_times> <task_page>;

-- tasks_by_status --
SELECT <task_columns> FROM tasks t WHERE t.completion_status = :status AND <task_times>
<task_page>;

-- tasks_of_parent --
SELECT <task_columns> FROM tasks t WHERE <task_of_parent> AND <task_times> <task_page>;

-- count_tasks_by_time --
SELECT count(*) FROM bus_tasks t WHERE <task_times>;

-- count_tasks_active --
SELECT count(*) FROM bus_tasks t WHERE t.completion_status IS NULL AND <task_times>;

-- count_tasks_by_status --
SELECT count(*) FROM bus_tasks t WHERE t.completion_status = :status AND <task_times>;

-- count_tasks_of_parent --
SELECT count(*) FROM bus_tasks t WHERE <task_of_parent> AND <task_times>;

-- insert_task_message --
INSERT INTO bus_messages (id, task_id, role, content, timestamp, partial)
VALUES (:id, :task_id, :role, :content, :timestamp, :partial)
ON CONFLICT (id) DO NOTHING
RETURNING position;

-- task_message --
SELECT id, task_id, role, content, timestamp, partial, turn_id FROM bus_messages WHERE id = :id;

-- task_messages --
SELECT m.id, m.task_id, m.role, m.content, m.timestamp FROM bus_messages m
WHERE m.task_id = :task_id AND m.partial = 0
ORDER BY m.timestamp, m.position LIMIT :limit OFFSET :offset;

-- count_task_messages --
SELECT count(*) FROM bus_messages m WHERE m.task_id = :task_id AND m.partial = 0;

-- insert_task_call --
INSERT INTO bus_calls (
    id, task_id, ability_name, parameters, status, details, created_at, updated_at,
    start_message_id, end_message_id, writer_id
) VALUES (
    :id, :task_id, :ability_name, :parameters, :status, :details, :created_at, :updated_at,
    :start_message_id, :end_message_id, :writer_id
);

-- update_task_call --
UPDATE bus_calls SET
    status = :status, details = :details, updated_at = :updated_at,
    end_message_id = :end_message_id, writer_id = :writer_id, revision = revision + 1
WHERE id = :id;

-- task_call --
SELECT <task_call_columns> FROM bus_calls c WHERE c.id = :id;

-- task_calls --
SELECT <task_call_columns> FROM bus_calls c WHERE c.task_id = :task_id
ORDER BY c.created_at, c.position;

-- task_calls_in_progress --
SELECT <task_call_columns> FROM bus_calls c
WHERE c.task_id = :task_id AND c.status = 'in_progress'
ORDER BY c.created_at, c.position;

-- writer_calls --
SELECT <task_call_columns> FROM bus_calls c WHERE c.writer_id = :writer_id ORDER BY c.position;

-- turn_of_record_before --
-- The turn of the last record of a task before a place in its order.
SELECT m.turn_id FROM bus_messages m
WHERE m.task_id = :task_id AND (m.timestamp, m.position) < (:timestamp, :position)
AND m.turn_id IS NOT NULL
ORDER BY m.timestamp DESC, m.position DESC LIMIT 1;

-- last_turn_of_task --
SELECT m.turn_id FROM bus_messages m WHERE m.task_id = :task_id AND m.turn_id IS NOT NULL
ORDER BY m.timestamp DESC, m.position DESC LIMIT 1;

-- first_record_of_turn --
SELECT m.timestamp, m.position FROM bus_messages m WHERE m.turn_id = :turn_id
ORDER BY m.timestamp, m.position LIMIT 1;

-- records_since --
-- The messages of a task from a place in its order on, partial ones too, without their content.
SELECT m.position, m.id, m.role, m.timestamp, m.partial, m.turn_id FROM bus_messages m
WHERE m.task_id = :task_id AND (m.timestamp, m.position) >= (:timestamp, :position)
ORDER BY m.timestamp, m.position;

-- record_contents --
SELECT id, content FROM bus_messages WHERE id IN <ids>;

-- calls_since --
-- The calls those messages announced, in outline.
SELECT c.id, c.start_message_id, c.updated_at, c.revision, c.derived_revision FROM bus_messages m
JOIN bus_calls c ON c.start_message_id = m.id
WHERE m.task_id = :task_id AND (m.timestamp, m.position) >= (:timestamp, :position)
ORDER BY c.position;

-- task_calls_of --
SELECT <task_call_columns> FROM bus_calls c WHERE c.id IN <ids>;

-- mark_calls_derived --
UPDATE bus_calls SET derived_revision = revision WHERE id IN <ids>;

-- delete_turn_call --
DELETE FROM tool_calls WHERE turn_id = :turn_id AND id = :id;

-- name_tasks_of_messages --
-- Messages of tasks that do not name their task: they come from a ledger of version 0.1.0.
UPDATE messages SET
    task_id = (SELECT b.task_id FROM bus_messages b WHERE b.id = substr(messages.id, 6)),
    timestamp = created_at
WHERE task_id IS NULL AND id IN (SELECT 'task:' || b.id FROM bus_messages b WHERE b.partial = 0);

-- set_record_turn --
UPDATE bus_messages SET turn_id = :turn_id WHERE position = :position;

-- insert_bus_turn --
INSERT INTO bus_turns (turn_id, task_id) VALUES (:turn_id, :task_id) ON CONFLICT DO NOTHING;

-- delete_bus_turn --
DELETE FROM bus_turns WHERE turn_id = :turn_id;

-- insert_stream --
INSERT INTO bus_streams (id, task_id, writer_id, turn_id)
VALUES (:id, :task_id, :writer_id, NULL)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- stream --
SELECT task_id, writer_id FROM bus_streams WHERE id = :id;

-- streams_of_task --
SELECT id FROM bus_streams WHERE task_id = :task_id ORDER BY id;

-- writer_streams --
SELECT id, task_id FROM bus_streams WHERE writer_id = :writer_id ORDER BY id;

-- set_stream_turn --
UPDATE bus_streams SET turn_id = :turn_id WHERE task_id = :task_id;

-- insert_stream_text --
INSERT INTO bus_stream_texts (stream_id, piece, content)
SELECT :stream_id, COALESCE(max(piece), -1) + 1, :content
FROM bus_stream_texts WHERE stream_id = :stream_id;

-- stream_texts --
SELECT content FROM bus_stream_texts WHERE stream_id = :stream_id ORDER BY piece;

-- delete_stream_texts --
DELETE FROM bus_stream_texts WHERE stream_id = :stream_id;

-- delete_stream --
DELETE FROM bus_streams WHERE id = :id;
