-- Moves are read in the order they were made: a clock that was wrong once must not change it.
DROP INDEX idx_session_history_label;
CREATE INDEX idx_session_history_label ON session_history (session_label, id, changed_at);
