"""Builds about 200 MB of live objects of the kinds that a service holds, says so, and idles. Asked to,
it writes to 5 % of its pages, at random."""
import os
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


def rewrite(share):
    """Swaps two values of random objects in place, attributes, items of a list or values of a dict, once
    for each page of the share: a few fewer pages are written to, since some are hit twice."""
    for _ in range(int(used() / 4096 * share)):
        r = random.choice(records)
        kind = random.randrange(3)
        if kind == 0:
            r.key, r.title = r.title, r.key
        elif kind == 1:
            r.scores[0], r.scores[1] = r.scores[1], r.scores[0]
        else:
            r.tags['kind'], r.tags['seen'] = r.tags['seen'], r.tags['kind']


while True:
    if os.path.exists('/tmp/rewrite'):
        os.remove('/tmp/rewrite')
        rewrite(0.038)
        open('/tmp/rewritten', 'w').close()
    time.sleep(0.1)
