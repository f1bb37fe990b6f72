-- What is set for a ledger, whoever opens it.
CREATE TABLE ledger_settings (
    name TEXT PRIMARY KEY,            -- secrets: what is done about them
    value TEXT NOT NULL,              -- of secrets: report or mask
    changed_at BIGINT NOT NULL        -- when it was set
);

-- Every search asks whether anything is hidden. Few ledgers have deleted sessions.
CREATE INDEX idx_sessions_deleted ON sessions (label) WHERE status = 'deleted';
