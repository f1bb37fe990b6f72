-- The ledger as a whole.

-- migrations_applied --
SELECT number FROM schema_migrations ORDER BY number;

-- insert_migration --
INSERT INTO schema_migrations (number, name, applied_at) VALUES (:number, :name, :applied_at);

-- counts --
SELECT
    (SELECT count(*) FROM sessions), (SELECT count(*) FROM turns),
    (SELECT count(*) FROM messages), (SELECT count(*) FROM tool_calls);

-- setting --
SELECT value FROM ledger_settings WHERE name = :name;

-- set_setting --
INSERT INTO ledger_settings (name, value, changed_at) VALUES (:name, :value, :now)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at;
