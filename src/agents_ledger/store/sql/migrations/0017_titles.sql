-- What files call sessions of other files, by a record of them.
CREATE TABLE source_titles (
    file_id BIGINT NOT NULL REFERENCES source_files (id) DEFERRABLE INITIALLY IMMEDIATE,
    record_id TEXT NOT NULL,
    position BIGINT NOT NULL,
    title TEXT NOT NULL,
    PRIMARY KEY (file_id, record_id)
);
CREATE INDEX idx_source_titles_record ON source_titles (record_id);
