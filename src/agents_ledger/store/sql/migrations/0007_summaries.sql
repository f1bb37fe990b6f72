-- Sums of days that are over.

CREATE TABLE summary_days (
    day BIGINT PRIMARY KEY            -- since 1970, by UTC
);

-- '' where a turn does not say its model, provider or workspace.
CREATE TABLE usage_sums (
    day BIGINT NOT NULL,
    hour BIGINT NOT NULL,             -- since 1970
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    workspace_path TEXT NOT NULL,
    turns BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    untold BIGINT NOT NULL,
    tool_calls BIGINT NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cached_input_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    reasoning_tokens BIGINT NOT NULL,
    total_tokens BIGINT NOT NULL,
    fresh_input_tokens BIGINT NOT NULL,
    paid_output_tokens BIGINT NOT NULL,
    PRIMARY KEY (day, hour, model, provider, workspace_path)
) <clustered>;

CREATE TABLE tool_sums (
    day BIGINT NOT NULL,
    tool_name TEXT NOT NULL,
    status TEXT NOT NULL,
    step BIGINT NOT NULL,             -- of durations; 0: they do not say
    calls BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    longest_ms BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    PRIMARY KEY (day, tool_name, status, step)
) <clustered>;
