-- The latest calls of a tool, without sorting all of them.

DROP INDEX idx_tool_calls_tool;
CREATE INDEX idx_tool_calls_tool ON tool_calls (tool_name, turn_id);
