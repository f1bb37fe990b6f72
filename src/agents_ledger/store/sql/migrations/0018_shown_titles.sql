-- Whether the sessions that a title names were derived with it: an import may have died before.
ALTER TABLE source_titles ADD COLUMN shown BIGINT NOT NULL DEFAULT 0;
CREATE INDEX idx_source_titles_unshown ON source_titles (file_id) WHERE shown = 0;
