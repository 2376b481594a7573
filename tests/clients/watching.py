"""Optimistic locking as applications of redis-py do it: WATCH, read, MULTI, EXEC, again on a conflict.

usage: watching.py PORT...

The ports are those of a ring's nodes, the first two are its first rack. Prints what came out; `ok`
at the end.
"""
import sys
import threading

import redis

PORTS = [int(port) for port in sys.argv[1:]]
THREADS, TIMES = 6, 15


def connect(i):
    return redis.Redis(host="127.0.0.1", port=PORTS[i % len(PORTS)])


def conflicts_are_noticed():
    """Whatever node the other client writes through, and however it writes."""
    writes = [
        lambda r: r.set("{w}k", "theirs"),
        lambda r: r.append("{w}k", "x"),
        lambda r: r.delete("{w}k"),
        lambda r: r.pipeline().set("{w}k", 1).execute(),
        lambda r: r.eval("return redis.call('SET', KEYS[1], '1')", 1, "{w}k"),
    ]
    for i, write in enumerate(writes[: 4 if embedded() else 5]):
        mine, theirs = connect(i), connect(i + 1)
        mine.set("{w}k", "mine")
        with mine.pipeline() as pipe:
            pipe.watch("{w}k", "{w}other")
            before = pipe.get("{w}k")
            assert before == b"mine", before
            write(theirs)
            # The copy of their write at the replica that watches is what counts.
            while connect(0).get("{w}k") == b"mine" or pipe.get("{w}k") == b"mine":
                pass
            pipe.multi()
            pipe.set("{w}k", "lost")
            try:
                pipe.execute()
                raise SystemExit(f"write {i} was not noticed")
            except redis.WatchError:
                pass
        assert mine.get("{w}k") != b"lost"
        with mine.pipeline() as pipe:
            pipe.watch("{w}k")
            pipe.multi()
            pipe.set("{w}k", "won").get("{w}k")
            assert pipe.execute() == [True, b"won"]
    print("conflicts are noticed")


def embedded():
    try:
        connect(0).eval("return 1", 0)
        return False
    except redis.ResponseError:
        return True


def nothing_is_lost():
    """Clients at all nodes count up."""
    clashes = [0] * THREADS

    def count(i):
        r = connect(i)
        for _ in range(TIMES):
            while True:
                with r.pipeline() as pipe:
                    try:
                        pipe.watch("{w}count")
                        now = int(pipe.get("{w}count") or 0)
                        pipe.multi()
                        pipe.set("{w}count", now + 1)
                        pipe.rpush("{w}log", now)
                        pipe.execute()
                        break
                    except redis.WatchError:
                        clashes[i] += 1

    threads = [threading.Thread(target=count, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = THREADS * TIMES
    # The first rack tells what changed. Where writes carry stamps, the last one is last everywhere.
    for i in range(len(PORTS) if embedded() else 2):
        r = connect(i)
        while int(r.get("{w}count") or 0) != total or r.llen("{w}log") != total:
            pass
    assert [int(n) for n in connect(0).lrange("{w}log", 0, -1)] == list(range(total))
    print("nothing is lost;", sum(clashes), "transactions had to be repeated")


def transaction_helper():
    r = connect(2)
    r.set("{w}n", 5)

    def double(pipe):
        n = int(pipe.get("{w}n"))
        pipe.multi()
        pipe.set("{w}n", 2 * n)

    assert r.transaction(double, "{w}n") == [True]
    assert r.get("{w}n") == b"10"
    print("the helper works")


conflicts_are_noticed()
transaction_helper()
nothing_is_lost()
print("ok")
