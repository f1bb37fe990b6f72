-- What pgvector adds, where a server has it.

-- extension --
-- The schema it was put into, {schema} below.
SELECT quote_ident(n.nspname)
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'vector';

-- nearest --
-- Vectors have length 1, so their inner product tells how alike they are.
SELECT
    d.id, d.turn_id, p.segment_id, p.depth,
    -(CAST(v.vector AS {schema}.vector) OPERATOR({schema}.<#>) CAST(:asked AS {schema}.vector)) AS likeness
FROM search_vectors v
JOIN search_docs d ON d.id = v.doc_id
JOIN places p ON p.turn_id = d.turn_id
WHERE v.model = :model AND v.doc_id >= :low AND v.doc_id < :high
AND NOT EXISTS (SELECT 1 FROM search_waiting w WHERE w.turn_id = d.turn_id)
ORDER BY likeness DESC, d.id DESC LIMIT :limit;
