"""Keeps a database of SQLite in WAL mode, of which each write is a transaction of its own."""
import hashlib, os, sqlite3, sys

ROWS = 20000
os.makedirs("/data", exist_ok=True)
db = sqlite3.connect("/data/base.db", isolation_level=None)
assert db.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
db.execute("PRAGMA synchronous=FULL")
db.execute("CREATE TABLE written (stream INT, n INT, PRIMARY KEY (stream, n))")
db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INT, text TEXT)")
db.execute("BEGIN")
for i in range(ROWS):
    db.execute("INSERT INTO account VALUES (?, 100, ?)", (i, hashlib.sha256(b"%d" % i).hexdigest() * 8))
db.execute("COMMIT")


def chain(numbers):
    h = 2166136261
    for n in numbers:
        h = (h * 16777619 ^ n) & 0xFFFFFFFF
    return h


def write(stream, n):
    db.execute("BEGIN")
    db.execute("INSERT INTO written VALUES (?, ?)", (stream, n))
    db.execute("UPDATE account SET balance = balance - 1 WHERE id = ?", (n % ROWS,))
    db.execute("UPDATE account SET balance = balance + 1 WHERE id = ?", (n * 7919 % ROWS,))
    db.execute("COMMIT")
    return "ok"


def check():
    if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
        return "the database is damaged"
    if db.execute("SELECT sum(balance) FROM account").fetchone() != (100 * ROWS,):
        return "the sum of all balances has changed"
    found = []
    for stream in 0, 1:
        numbers = [n for n, in db.execute("SELECT n FROM written WHERE stream = ? ORDER BY n", (stream,))]
        found.append(f"{numbers[-1] if numbers else 0} {chain(numbers)}")
    digest = hashlib.sha256()
    for text, in db.execute("SELECT text FROM account ORDER BY id"):
        digest.update(text.encode())
    return f"{' '.join(found)} {digest.hexdigest()}"


for line in sys.stdin:
    question = line.split()
    if question[0] == "w":
        answer = write(int(question[1]), int(question[2]))
    elif question[0] == "c":
        answer = check()
    else:
        answer = "ok"
    print(answer, flush=True)
