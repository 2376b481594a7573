"""Everyday calls of pymemcache or aiomcache, with default options.

usage: everyday_memcache.py LIBRARY PORT

Prints one line a call. The same run against one memcached must print the same lines.
"""
import asyncio
import sys

library, port = sys.argv[1], int(sys.argv[2])


def show(name, value):
    if isinstance(value, dict):
        value = sorted(value.items())
    print(name, repr(value))


def pymemcache():
    from pymemcache.client.base import Client
    c = Client(("127.0.0.1", port))
    for i in range(20):
        show("set", c.set(f"k{i}", f"value {i}"))
    show("get", c.get("k3"))
    show("get", c.get("absent"))
    show("get_many", c.get_many([f"k{i}" for i in range(20)] + ["absent"]))
    show("set_many", c.set_many({"a": "1", "b": "2", "c": "3"}))
    show("add", c.add("k1", "x", noreply=False))
    show("replace", c.replace("absent", "x", noreply=False))
    show("append", c.append("k1", "!", noreply=False))
    show("prepend", c.prepend("k1", "?", noreply=False))
    show("get", c.get("k1"))
    value, unique = c.gets("k2")
    show("gets", value)
    show("cas", c.cas("k2", "new", unique, noreply=False))
    show("cas", c.cas("k2", "newer", unique, noreply=False))
    show("incr", c.set("n", "41") and c.incr("n", 1))
    show("decr", c.decr("n", 2))
    show("incr", c.incr("absent", 1))
    show("touch", c.touch("k4", 100, noreply=False))
    show("delete", c.delete("k5"))
    show("delete", c.delete("absent", noreply=False))
    show("delete_many", c.delete_many(["a", "b", "absent"]))
    show("get_many", c.get_many(["a", "b", "c"]))


async def aiomcache():
    import aiomcache
    c = aiomcache.Client("127.0.0.1", port)
    for i in range(20):
        show("set", await c.set(b"k%d" % i, b"value %d" % i))
    show("get", await c.get(b"k3"))
    show("get", await c.get(b"absent"))
    show("multi_get", await c.multi_get(*[b"k%d" % i for i in range(20)], b"absent"))
    show("add", await c.add(b"k1", b"x"))
    show("replace", await c.replace(b"absent", b"x"))
    show("append", await c.append(b"k1", b"!"))
    show("get", await c.get(b"k1"))
    show("set", await c.set(b"n", b"41"))
    show("incr", await c.incr(b"n", 1))
    show("decr", await c.decr(b"n", 2))
    show("touch", await c.touch(b"k4", 100))
    show("delete", await c.delete(b"k5"))
    show("delete", await c.delete(b"absent"))
    await c.close()


pymemcache() if library == "pymemcache" else asyncio.run(aiomcache())
