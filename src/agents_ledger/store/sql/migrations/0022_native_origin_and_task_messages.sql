-- Where sessions recorded here come from is said, not implied. What follows the source of a session
-- that was continued here comes from there, and so do subagents that only an imported call names.
UPDATE sessions SET origin = COALESCE((
    SELECT s.origin FROM sessions s
    WHERE sessions.created_as = 'import' AND sessions.label = s.label || '~source'
), (
    SELECT p.origin FROM sessions p JOIN turns t ON t.id = sessions.parent_turn_id
    WHERE p.label = sessions.parent_session_label AND t.projected = 1
), 'native') WHERE origin IS NULL;

-- Messages of tasks can be selected by their task, in the order of the specification.
ALTER TABLE messages ADD COLUMN task_id TEXT;
ALTER TABLE messages ADD COLUMN timestamp BIGINT;
CREATE INDEX idx_messages_task ON messages (task_id, timestamp) WHERE task_id IS NOT NULL;
UPDATE messages SET
    task_id = (SELECT b.task_id FROM bus_messages b WHERE b.id = substr(messages.id, 6)),
    timestamp = created_at
WHERE id IN (SELECT 'task:' || b.id FROM bus_messages b WHERE b.partial = 0);
