-- Guards and functions are made anew after each migration. On PostgreSQL guards of inserts look at a whole statement
-- now, and functions record turns in one call.
SELECT 1;
