-- Source records and what was derived from them.

ALTER TABLE sessions ADD COLUMN source_title TEXT;
ALTER TABLE sessions ADD COLUMN metadata_json TEXT;
ALTER TABLE sessions ADD COLUMN source_has_more BIGINT NOT NULL DEFAULT 0;

CREATE INDEX idx_sessions_known_as ON sessions (COALESCE(origin_session_id, label));

CREATE INDEX idx_sessions_parent_turn ON sessions (parent_turn_id)
    WHERE parent_turn_id IS NOT NULL;

CREATE TABLE source_files (
    id <serial_key>,
    source TEXT NOT NULL,
    path TEXT NOT NULL,
    generation BIGINT NOT NULL,
    family TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('lines', 'document', 'rows')),
    size BIGINT NOT NULL,
    mtime_ns BIGINT NOT NULL,
    kept_bytes BIGINT NOT NULL,
    tail_hash <bytes>,
    cursor_json TEXT,
    derived_bytes BIGINT NOT NULL DEFAULT -1,
    derived_version BIGINT NOT NULL DEFAULT 0,
    first_seen_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX idx_source_files_path ON source_files (path, generation);
CREATE INDEX idx_source_files_family ON source_files (family);
CREATE INDEX idx_source_files_behind ON source_files (id) WHERE derived_bytes <> kept_bytes;

CREATE TABLE source_blocks (
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    start BIGINT NOT NULL,
    length BIGINT NOT NULL,
    base_file_id BIGINT REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    data <bytes> NOT NULL,
    PRIMARY KEY (file_id, start)
);

CREATE TABLE turn_sources (
    turn_id TEXT NOT NULL REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE,
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    PRIMARY KEY (turn_id, file_id)
) <clustered>;
CREATE INDEX idx_turn_sources_file ON turn_sources (file_id);

CREATE TABLE session_sources (
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    PRIMARY KEY (session_label, file_id)
) <clustered>;
CREATE INDEX idx_session_sources_file ON session_sources (file_id);

CREATE TABLE session_imports (
    source TEXT NOT NULL,
    source_provider TEXT NOT NULL,
    source_session_id TEXT NOT NULL,
    source_session_fingerprint TEXT NOT NULL,
    session_label TEXT NOT NULL REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    head_turn_id TEXT REFERENCES turns (id) DEFERRABLE INITIALLY IMMEDIATE,
    imported_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    last_run_id TEXT NOT NULL,
    PRIMARY KEY (source, source_provider, source_session_id)
);
CREATE INDEX idx_session_imports_label ON session_imports (session_label);

CREATE TABLE source_links (
    child_label TEXT PRIMARY KEY REFERENCES sessions (label) DEFERRABLE INITIALLY IMMEDIATE,
    parent_label TEXT NOT NULL
);
CREATE INDEX idx_source_links_parent ON source_links (parent_label);

CREATE TABLE session_import_requests (
    idempotency_key TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    mode TEXT NOT NULL,
    run_id TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    response_json TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE session_import_chunk_parts (
    source TEXT NOT NULL,
    upload_id TEXT NOT NULL,
    chunk_index BIGINT NOT NULL,
    chunk_total BIGINT NOT NULL,
    mode TEXT NOT NULL,
    run_id TEXT NOT NULL,
    persona_id TEXT,
    idempotency_key TEXT NOT NULL,
    source_provider TEXT NOT NULL,
    source_session_id TEXT NOT NULL,
    source_session_fingerprint TEXT NOT NULL,
    encoding TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (source, upload_id, chunk_index)
);

CREATE TABLE import_runs (
    id TEXT PRIMARY KEY,
    started_at BIGINT NOT NULL,
    finished_at BIGINT,
    imported BIGINT NOT NULL DEFAULT 0,
    upserted BIGINT NOT NULL DEFAULT 0,
    skipped BIGINT NOT NULL DEFAULT 0,
    failed BIGINT NOT NULL DEFAULT 0,
    report_json TEXT
);

CREATE TABLE source_faults (
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    position BIGINT NOT NULL,
    line BIGINT,
    what TEXT NOT NULL,
    PRIMARY KEY (file_id, position, what)
);
