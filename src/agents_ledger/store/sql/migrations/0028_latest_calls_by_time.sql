-- The latest calls of a tool: the ids of imported turns say nothing about the time.

DROP INDEX IF EXISTS idx_tool_calls_tool;
CREATE INDEX idx_tool_calls_tool ON tool_calls (tool_name, started_at, turn_id);
