-- What pgvector adds, where a server has it. {schema} is where it was put.

-- extension --
SELECT quote_ident(n.nspname)
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'vector';

-- nearest --
-- Every vector is compared. They have length 1, so their inner product tells how alike they are.
SELECT
    d.id, d.turn_id, p.segment_id, p.depth,
    -(CAST(v.vector AS {schema}.vector) OPERATOR({schema}.<#>) CAST(:asked AS {schema}.vector)) AS likeness
FROM search_vectors v
JOIN search_docs d ON d.id = v.doc_id
JOIN places p ON p.turn_id = d.turn_id
WHERE v.model = :model AND v.doc_id >= :low AND v.doc_id < :high
AND NOT EXISTS (SELECT 1 FROM search_waiting w WHERE w.turn_id = d.turn_id)
ORDER BY likeness DESC, d.id DESC LIMIT :limit;

-- index_exists --
SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relname = :name AND i.indisvalid
AND c.relnamespace = CAST(quote_ident(current_schema()) AS regnamespace);

-- can_index --
-- Old versions of it have no such index.
SELECT 1 FROM pg_am a WHERE a.amname = 'hnsw';

-- lock_index --
SELECT pg_advisory_xact_lock(hashtext(current_schema() || :name));

-- make_index --
-- Of one model: those of others have other lengths.
CREATE INDEX {name} ON search_vectors
USING hnsw ((CAST(vector AS {schema}.vector({length}))) {schema}.vector_ip_ops)
WHERE model = {model};

-- look_at --
-- How many vectors the index looks at, in this transaction.
SELECT set_config('hnsw.ef_search', :count, true);

-- indexed --
-- The same as nearest, by the index: it may miss a few of the less near.
WITH near AS MATERIALIZED (
    SELECT
        v.doc_id,
        CAST(v.vector AS {schema}.vector({length}))
            OPERATOR({schema}.<#>) CAST(:asked AS {schema}.vector({length})) AS distance
    FROM search_vectors v WHERE v.model = {model}
    ORDER BY distance LIMIT :limit
)
SELECT d.id, d.turn_id, p.segment_id, p.depth, -near.distance AS likeness
FROM near
JOIN search_docs d ON d.id = near.doc_id
JOIN places p ON p.turn_id = d.turn_id
WHERE NOT EXISTS (SELECT 1 FROM search_waiting w WHERE w.turn_id = d.turn_id)
ORDER BY likeness DESC, d.id DESC;
