# A transaction at the PostgreSQL at address $1. In its middle it waits for the file /tmp/go.
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
until "$bin/pg_isready" -q -h "$1"; do sleep 0.2; done
exec "$bin/psql" -h "$1" -U user -X -q -A -t -v ON_ERROR_STOP=1 postgres <<'SQL'
CREATE TABLE kept (n INT);
BEGIN;
INSERT INTO kept VALUES (1);
SELECT pg_backend_pid() AS backend, txid_current() AS transaction \gset
\echo before
\! until [ -e /tmp/go ]; do sleep 0.2; done
INSERT INTO kept VALUES (2);
SELECT 'after', pg_backend_pid() = :backend, txid_current() = :transaction, sum(n) FROM kept;
COMMIT;
SELECT 'committed', count(*) FROM kept;
SQL
