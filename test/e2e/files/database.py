"""Writes numbers into a database, or checks them: database.py (write|check) (postgres|mariadb|redis|sqlite).

Each writer writes 1, 2, 3, ..., each in a transaction of its own, and prints its name and the number once the database
has acknowledged it. A writer that begins anew goes on after what the database has. A number that is there twice is an
error, which ends the program."""
import os, sys, threading, time

WRITERS, TEXT, PAUSE = 3, "x" * 1000, 0.01
TABLE = "CREATE TABLE IF NOT EXISTS written (writer INT, n INT, text VARCHAR(1000), PRIMARY KEY (writer, n))"


class SQL:
    """A database that is reached by a module of Python's for databases."""

    mark, integrity = "%s", ()

    def __init__(self):
        self.db = self.connect()

    def ask(self, sql, *args):
        cursor = self.db.cursor()
        cursor.execute(sql, args)
        return cursor.fetchall() if cursor.description else []

    def prepare(self):
        self.ask(TABLE)

    def write(self, writer, n):
        self.ask("INSERT INTO written VALUES (?, ?, ?)".replace("?", self.mark), writer, n, TEXT)

    def numbers(self, writer):
        rows = self.ask("SELECT n FROM written WHERE writer = ? ORDER BY n".replace("?", self.mark), writer)
        return [n for n, in rows]

    def check(self):
        for sql, want in self.integrity:
            if (got := self.ask(sql)[-1][-1]) != want:
                sys.exit(f"{sql}: {got}")


class Postgres(SQL):
    integrity = (
        ("CREATE EXTENSION IF NOT EXISTS amcheck; SELECT bt_index_check('written_pkey', true)", ""),
        ("SELECT count(*) FROM verify_heapam('written')", 0),
    )

    def connect(self):
        import psycopg2
        db = psycopg2.connect(host="/var/run/postgresql", user="user", dbname="postgres")
        db.autocommit = True
        return db


class MariaDB(SQL):
    integrity = (("CHECK TABLE written EXTENDED", "OK"),)

    def connect(self):
        import pymysql
        return pymysql.connect(unix_socket="/tmp/mariadb.sock", user="root", database="test", autocommit=True)

    def prepare(self):
        self.ask(TABLE + " ENGINE=InnoDB")


class SQLite(SQL):
    mark, integrity = "?", (("PRAGMA integrity_check", "ok"),)

    def connect(self):
        import sqlite3
        db = sqlite3.connect("/data/base/db", timeout=60, isolation_level=None)
        assert db.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        db.execute("PRAGMA synchronous=FULL")
        return db


class Redis:
    def __init__(self):
        import socket
        self.file = socket.create_connection(("127.0.0.1", 6379)).makefile("rwb")

    def ask(self, *words):
        words = [str(w).encode() for w in words]
        self.file.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        self.file.flush()
        return self.answer()

    def answer(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:].strip()
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2]
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        raise OSError(line)

    def prepare(self):
        while b"loading:0" not in self.ask("INFO", "persistence"):
            time.sleep(0.05)

    def write(self, writer, n):
        if self.ask("RPUSH", writer, f"{n} {TEXT}") != n:
            raise OSError(f"writer {writer}: {n} is not the number of its list")

    def numbers(self, writer):
        return [int(item.split()[0]) for item in self.ask("LRANGE", writer, 0, -1)]

    def check(self):
        for name in "aof_last_write_status", "aof_last_bgrewrite_status":
            if f"{name}:ok".encode() not in self.ask("INFO", "persistence"):
                sys.exit(f"{name} is not ok")


KINDS = {"postgres": Postgres, "mariadb": MariaDB, "redis": Redis, "sqlite": SQLite}


def reach(kind):
    """Waits until the database answers."""
    while True:
        try:
            db = kind()
            db.prepare()
            return db
        except Exception as e:
            print("waiting:", e, file=sys.stderr, flush=True)
            time.sleep(0.1)


def writes(kind, writer):
    try:
        db = kind()
        n = len(db.numbers(writer))
        while True:
            n += 1
            db.write(writer, n)
            print(f"writer {writer} {n}\n", end="", flush=True)
            time.sleep(PAUSE)
    except BaseException as e:
        print(f"writer {writer} failed at {n}: {e}", flush=True)
        os._exit(1)


def checks(kind):
    db = kind()
    for writer in range(WRITERS):
        numbers = db.numbers(writer)
        if numbers != list(range(1, len(numbers) + 1)):
            sys.exit(f"writer {writer} has {len(numbers)} numbers from {numbers[0]} to {numbers[-1]}")
        print(f"writer {writer} {len(numbers)}")
    db.check()


if sys.argv[1] == "check":
    checks(KINDS[sys.argv[2]])
else:
    reach(KINDS[sys.argv[2]])
    for writer in range(WRITERS):
        threading.Thread(target=writes, args=(KINDS[sys.argv[2]], writer)).start()
