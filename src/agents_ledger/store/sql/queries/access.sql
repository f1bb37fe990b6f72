-- Who may ask a server what.

-- lock_tokens --
-- Taken before a token is created: two of the same name must not be created at once.
<lock_tokens>;

-- insert_token --
INSERT INTO access_tokens (id, name, secret_hash, scopes, created_at, expires_at)
VALUES (:id, :name, :secret_hash, :scopes, :created_at, :expires_at);

-- all_tokens --
-- There are few.
SELECT id, name, scopes, created_at, expires_at, revoked_at FROM access_tokens ORDER BY id DESC;

-- token_by_hash --
SELECT id, name, scopes, created_at, expires_at, revoked_at FROM access_tokens
WHERE secret_hash = :secret_hash;

-- token_by_id --
SELECT id, name, scopes, created_at, expires_at, revoked_at FROM access_tokens WHERE id = :id;

-- tokens_called --
-- By id, or by name while they are not revoked.
SELECT id, name, scopes, created_at, expires_at, revoked_at FROM access_tokens
WHERE id = :called OR (name = :called AND revoked_at IS NULL)
ORDER BY id;

-- revoke_token --
UPDATE access_tokens SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL;

-- revoke_all_tokens --
-- In a copy of a ledger: nobody has been given them for it.
UPDATE access_tokens SET revoked_at = :now WHERE revoked_at IS NULL RETURNING id;
