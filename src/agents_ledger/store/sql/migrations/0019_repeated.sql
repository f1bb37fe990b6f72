-- Records that a source wrote again under new ids. They are no messages, but who has one of them is
-- of the same tree.
CREATE TABLE repeated_records (
    id TEXT PRIMARY KEY,
    turn_id TEXT NOT NULL REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE
) <clustered>;
CREATE INDEX idx_repeated_records_turn ON repeated_records (turn_id);

CREATE INDEX idx_session_imports_head ON session_imports (head_turn_id);
