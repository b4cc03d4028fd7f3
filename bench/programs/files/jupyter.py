"""Passes questions on to a Jupyter kernel, which keeps all there is, as a notebook's front end does."""
import sys
from jupyter_client.manager import start_new_kernel

CELL = '''
import hashlib
streams = [[], []]
data = [hashlib.sha256(b"%d" % i).digest() * 100 for i in range(20000)]
table = {i: {"name": f"row {i}", "values": list(range(10))} for i in range(20000)}


def chain(numbers):
    h = 2166136261
    for n in numbers:
        h = (h * 16777619 ^ n) & 0xFFFFFFFF
    return h


def check():
    digest = hashlib.sha256(repr(table).encode())
    for d in data:
        digest.update(d)
    found = " ".join(f"{s[-1] if s else 0} {chain(s)}" for s in streams)
    return f"{found} {digest.hexdigest()}"
'''
manager, client = start_new_kernel(kernel_name="python3")


def run(code):
    out = []

    def hook(message):
        if message["msg_type"] == "stream":
            out.append(message["content"]["text"])
        elif message["msg_type"] == "error":
            out.append(message["content"]["evalue"])
    client.execute_interactive(code, output_hook=hook, timeout=None)
    return "".join(out).strip().replace("\n", " ")


run(CELL)
for line in sys.stdin:
    question = line.split()
    if question[0] == "w":
        answer = run(f"streams[{question[1]}].append({question[2]}); print('ok')")
    elif question[0] == "c":
        answer = run("print(check())")
    else:
        answer = run("print('ok')")
    print(answer, flush=True)
