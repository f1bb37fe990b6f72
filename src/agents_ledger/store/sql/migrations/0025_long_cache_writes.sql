-- Cache writes that are kept for an hour cost more. The next import derives them from source records.
ALTER TABLE turns ADD COLUMN long_cache_write_tokens BIGINT;
ALTER TABLE usage_sums ADD COLUMN long_cache_write_tokens BIGINT NOT NULL DEFAULT 0;
