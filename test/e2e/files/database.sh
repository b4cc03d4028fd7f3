# Runs the database $1, whose files are in the volume /data, and writers that load it. So far as a database can be told
# to, it begins and removes files often: a real one does that in hours.
set -e
prog=/prog/database.py
as_user() { setpriv --reuid=1000 --regid=1000 --clear-groups "$@"; }
# install_mariadb makes the system's tables, in the way of mariadb-install-db, which wants programs of the clients.
install_mariadb() {
	tables=/usr/share/mysql
	mkdir /data/base
	{
		printf '%s;\n' 'CREATE DATABASE mysql' 'CREATE DATABASE test' 'USE mysql' \
			"SET @auth_root_socket=NULL, @current_hostname='localhost', @skip_auth_anonymous=1"
		cat $tables/mysql_system_tables.sql $tables/mysql_performance_tables.sql $tables/mysql_system_tables_data.sql
	} | mariadbd --no-defaults --bootstrap --user=root --datadir=/data/base --innodb-log-file-size=4M
}
case $1 in
postgres)
	bin=$(echo /usr/lib/postgresql/*/bin)
	mkdir -p /var/run/postgresql
	chown 1000:1000 /data /var/run/postgresql
	[ -e /data/base ] || as_user "$bin/initdb" --no-sync --auth=trust --username=user --wal-segsize=1 -D /data/base
	as_user "$bin/postgres" -D /data/base -c min_wal_size=2MB -c max_wal_size=2MB &
	;;
mariadb)
	[ -e /data/base ] || install_mariadb
	mariadbd --no-defaults --user=root --datadir=/data/base --socket=/tmp/mariadb.sock --skip-networking \
		--innodb-log-file-size=4M --innodb-buffer-pool-size=32M &
	;;
redis)
	mkdir -p /data/base
	redis-server --dir /data/base --save '' --appendonly yes --auto-aof-rewrite-min-size 256kb \
		--auto-aof-rewrite-percentage 50 &
	;;
sqlite) mkdir -p /data/base ;;
esac
exec python3 $prog write "$1"
