"""Builds about 200 MB of live objects of the kinds that a service holds, says so, and idles."""
import random
import resource
import time

random.seed(7)
WORDS = [''.join(random.choices('abcdefghijklmnopqrstuvwxyz', k=random.randint(3, 9))) for _ in range(4000)]


class Record:
    __slots__ = ('key', 'title', 'scores', 'tags', 'parent', 'blob')

    def __init__(self, i, parent):
        self.key = 'record-%08d' % i
        self.title = ' '.join(random.choices(WORDS, k=6))
        self.scores = [random.random() for _ in range(8)]
        self.tags = {random.choice(WORDS): i, 'kind': i % 17, 'seen': i * 3}
        self.parent = parent
        self.blob = random.randbytes(64)


def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


records, index = [], {}
while len(records) < 185000:
    i = len(records)
    r = Record(i, records[i // 2] if i else None)
    records.append(r)
    index[r.key] = r
with open('/tmp/ready', 'w') as f:
    f.write('%d records, %d bytes\n' % (len(records), used()))
while True:
    time.sleep(1)
