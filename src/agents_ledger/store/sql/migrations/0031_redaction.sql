-- What was removed, why and by whom; never a value. While finished_at is NULL, within its own transaction,
-- the guards let texts be changed, and rows go if purges is 1.
CREATE TABLE redactions (
    id TEXT PRIMARY KEY,              -- ULID
    reason TEXT NOT NULL,             -- why, in the words of who asked for it
    actor TEXT NOT NULL,              -- who asked for it
    selection_json TEXT NOT NULL,     -- what was selected, without patterns and texts
    started_at BIGINT NOT NULL,
    finished_at BIGINT,               -- NULL: in progress, in the transaction that made the row
    scrubbed_at BIGINT,               -- NULL: free pages and the log may still hold what was removed
    purges BIGINT NOT NULL DEFAULT 0, -- rows are deleted
    places BIGINT NOT NULL DEFAULT 0, -- values that were removed from rows
    spans BIGINT NOT NULL DEFAULT 0,  -- and from archived files
    turns BIGINT NOT NULL DEFAULT 0   -- that had one of them
);
CREATE INDEX idx_redactions_open ON redactions (id) WHERE finished_at IS NULL;
CREATE INDEX idx_redactions_unscrubbed ON redactions (id) WHERE scrubbed_at IS NULL;

-- Tombstones: the columns from which something was removed.
CREATE TABLE redacted_places (
    redaction_id TEXT NOT NULL REFERENCES redactions (id) DEFERRABLE INITIALLY IMMEDIATE, -- that removed it
    table_name TEXT NOT NULL,         -- where it was
    row_key TEXT NOT NULL,            -- JSON list of the row's key
    column_name TEXT NOT NULL,        -- where it was
    turn_id TEXT,                     -- of the row; NULL: it belongs to none
    PRIMARY KEY (redaction_id, table_name, row_key, column_name)
);
CREATE INDEX idx_redacted_places_turn ON redacted_places (turn_id) WHERE turn_id IS NOT NULL;

-- Bytes of archived files that were overwritten: the same file imported again is read without them.
CREATE TABLE redacted_spans (
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    start BIGINT NOT NULL,            -- offset in the kept bytes
    length BIGINT NOT NULL,           -- in bytes
    redaction_id TEXT REFERENCES redactions (id) DEFERRABLE INITIALLY IMMEDIATE, -- NULL: on import, by the setting
    PRIMARY KEY (file_id, start)
);

-- Values that stay out of what is imported, by digests with a key that is not in the ledger.
CREATE TABLE redacted_values (
    digest <bytes> NOT NULL,          -- of the value, with the key
    key_id TEXT NOT NULL,             -- of the key
    length BIGINT NOT NULL,           -- in characters
    word <bytes> NOT NULL,            -- digest of its longest word; empty: it is found as a whole text only
    word_start BIGINT NOT NULL,       -- of that word in the value
    word_length BIGINT NOT NULL,      -- in characters
    kind TEXT NOT NULL,               -- of the secret, or how it was selected
    family TEXT NOT NULL DEFAULT '',  -- of the files in which it is removed; empty: all
    redaction_id TEXT NOT NULL REFERENCES redactions (id) DEFERRABLE INITIALLY IMMEDIATE, -- that removed it
    PRIMARY KEY (key_id, digest, family)
);

-- Ids that a source makes of content, where redacted records would give others: the turns keep theirs.
CREATE TABLE redacted_ids (
    derived_id TEXT PRIMARY KEY,      -- of the redacted records
    id TEXT NOT NULL                  -- in this ledger
);

-- What each run of the retention policies did.
CREATE TABLE retention_runs (
    id TEXT PRIMARY KEY,              -- ULID
    started_at BIGINT NOT NULL,
    finished_at BIGINT,
    actor TEXT NOT NULL,              -- who started it
    report_json TEXT NOT NULL         -- the policies, and the sessions each was applied to
);
