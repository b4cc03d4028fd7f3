# PostgreSQL with its own benchmark at work, at a rate that leaves the processor room.
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
mkdir -p /data /var/run/postgresql
chown 1000:1000 /data /var/run/postgresql
as_user() { setpriv --reuid=1000 --regid=1000 --clear-groups "$@"; }
as_user "$bin/initdb" --no-sync --auth=trust --username=user -D /data/base > /dev/null
echo "host all all 0.0.0.0/0 trust" >> /data/base/pg_hba.conf
as_user "$bin/postgres" -D /data/base -c listen_addresses='*' -c shared_buffers=128MB &
until as_user "$bin/pg_isready" -q; do sleep 0.1; done
as_user "$bin/pgbench" -i -q -s 5 postgres
as_user "$bin/psql" -q postgres -c 'CREATE TABLE written (stream INT, n INT, PRIMARY KEY (stream, n))'
exec setpriv --reuid=1000 --regid=1000 --clear-groups "$bin/pgbench" -n -c 4 -R 200 -T 1000000 postgres
