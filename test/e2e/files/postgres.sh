# PostgreSQL for anybody who can reach it.
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
mkdir -p /data /var/run/postgresql
chown 1000:1000 /data /var/run/postgresql
as_user() { setpriv --reuid=1000 --regid=1000 --clear-groups "$@"; }
as_user "$bin/initdb" --no-sync --auth=trust --username=user -D /data/base > /dev/null
echo "host all all 0.0.0.0/0 trust" >> /data/base/pg_hba.conf
exec setpriv --reuid=1000 --regid=1000 --clear-groups "$bin/postgres" -D /data/base -c listen_addresses='*'
