-- The log of evidence: what covers a sealed turn, a move of a session, a block of source records. It forms a Merkle
-- tree by position (docs/explanation/evidence.md). On PostgreSQL a leaf has a position below 0 until it is sequenced.
CREATE TABLE evidence (
    position <log_key>,               -- in the log, from 1
    kind TEXT NOT NULL                -- of what it covers
        CHECK (kind IN ('turn', 'move', 'source', 'redaction', 'purge', 'coverage', 'key')),
    subject TEXT NOT NULL,            -- turn id, session label, file id and start of a block
    move_id BIGINT,                   -- the line of session_history that it covers, too
    opening <bytes>,                  -- seed of the salts, or what a redaction left of them
    hash <bytes> NOT NULL,            -- of the leaf, as RFC 6962 has it
    payload TEXT                      -- what is covered, if no other row has it
);
CREATE INDEX idx_evidence_subject ON evidence (subject);
CREATE INDEX idx_evidence_waiting ON evidence (position) WHERE position < 0;

-- Checkpoints that were taken: signed statements of what the log was.
CREATE TABLE evidence_checkpoints (
    size BIGINT PRIMARY KEY,          -- number of leaves
    peaks <bytes> NOT NULL,           -- roots of the perfect trees that make up the log
    note TEXT NOT NULL,               -- as it was signed
    taken_at BIGINT NOT NULL          -- when it was signed
);

-- What was recorded before is sealed in the background; from then on it is covered.
INSERT INTO ledger_settings (name, value, changed_at)
SELECT x.name, x.value, (SELECT max(applied_at) FROM schema_migrations) FROM (
    SELECT 'evidence' AS name, 'behind' AS value
    UNION ALL
    SELECT 'evidence.moves', '0 ' || COALESCE((SELECT max(h.id) FROM session_history h), 0)
) x
WHERE EXISTS (SELECT 1 FROM turns) OR EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM source_files);
