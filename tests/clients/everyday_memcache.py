"""A hundred everyday calls of pymemcache or aiomcache, with default options.

usage: everyday_memcache.py LIBRARY PORT

Prints one line a call. The same run against one memcached must print the same lines.
"""
import asyncio
import sys

library, port = sys.argv[1], int(sys.argv[2])
MANY = [f"k{i}" for i in range(20)] + ["absent"]

# What both libraries can do: name, key or keys, more arguments.
CALLS = [
    *[("set", f"k{i}", f"value {i}") for i in range(20)],
    *[("get", f"k{i}") for i in range(0, 20, 3)],
    ("get", "absent"), ("get_many", MANY),
    ("set", "empty", ""), ("get", "empty"),
    ("set", "large", "x" * 100_000), ("get", "large"),
    ("set", "timed", "v", 1000), ("get", "timed"), ("touch", "timed", 2000), ("get", "timed"),
    ("touch", "absent", 10), ("touch", "timed", 0),
    ("set", "over", "v", 1), ("touch", "over", -1), ("get", "over"),
    ("add", "k1", "x"), ("add", "added", "1"), ("add", "added", "2"), ("get", "added"),
    ("replace", "absent", "x"), ("replace", "k2", "replaced"), ("get", "k2"),
    ("append", "k1", "!"), ("append", "absent", "!"), ("append", "k1", "!!"), ("get", "k1"),
    ("prepend", "k1", "?"), ("prepend", "absent", "?"), ("get", "k1"),
    ("set", "n", "41"), ("incr", "n", 1), ("incr", "n", 100), ("decr", "n", 2), ("get", "n"),
    ("decr", "n", 1000), ("incr", "n", 7), ("incr", "absent", 1), ("decr", "absent", 1),
    ("incr", "k3", 1), ("decr", "k3", 1),
    ("read_and_cas", "k4", "first"), ("get", "k4"), ("read_and_cas", "k4", "second"),
    ("late_cas", "k4", "third"), ("get", "k4"), ("late_cas", "k5", "x"), ("get", "k5"),
    ("read_and_cas", "added", "by cas"), ("get", "added"),
    ("delete", "k6"), ("get", "k6"), ("delete", "absent"), ("delete", "k7"), ("add", "k7", "new"),
    ("get", "k7"), ("get_many", MANY), ("get_many", ["absent"]),
    ("set", "binary", "\0\r\nEND\r\n"), ("get", "binary"),
    ("set", "k" * 250, "longest"), ("get", "k" * 250), ("get", "k" * 251),
    ("set", "a b", "no key"), ("set", "k8", "again", 0), ("get", "k8"),
]


def show(name, call, value):
    if isinstance(value, dict):
        value = sorted(value.items())
    if isinstance(value, tuple) and name.startswith("get"):
        value = [v for v in value if v is not None]
    print(name, repr(call)[:60], repr(value)[:200])


def pymemcache():
    from pymemcache.client.base import Client
    from pymemcache.exceptions import MemcacheError
    c = Client(("127.0.0.1", port))
    # Where it wants no answer by default, every second call asks for one.
    silent = {"set", "add", "replace", "append", "prepend", "delete", "touch"}

    def run(number, name, key, *more):
        if name == "read_and_cas":
            return c.cas(key, more[0], c.gets(key)[1], noreply=False)
        if name == "late_cas":
            _, unique = c.gets(key)
            c.set(key, "meanwhile")
            return c.cas(key, more[0], unique, noreply=False)
        options = {"noreply": False} if name in silent and number % 2 else {}
        return getattr(c, name)(key, *more, **options)

    for number, call in enumerate(CALLS):
        try:
            show(call[0], call[1:], run(number, *call))
        except MemcacheError as error:
            print(call[0], repr(call[1:])[:60], type(error).__name__, error)
    show("set_many", (), c.set_many({"a": "1", "b": "2", "c": "3"}))
    show("gets_many", (), sorted((k, v[0]) for k, v in c.gets_many(["a", "b", "none"]).items()))
    show("delete_many", (), c.delete_many(["a", "b", "absent"]))
    show("get_many", (), c.get_many(["a", "b", "c"]))
    show("version", (), bool(c.version()))
    show("stats", (), b"maxbytes" in c.stats("settings"))
    show("flush_all", (), c.flush_all(noreply=False))
    show("get_many", (), c.get_many(MANY))


async def aiomcache():
    import aiomcache
    c = aiomcache.Client("127.0.0.1", port)

    def raw(word):
        return word.encode() if isinstance(word, str) else word

    async def run(name, key, *more):
        more = [raw(word) for word in more]
        if name == "get_many":
            return await c.multi_get(*map(raw, key))
        if name == "read_and_cas":
            _, unique = await c.gets(raw(key))
            return await c.cas(raw(key), more[0], unique)
        if name == "late_cas":
            _, unique = await c.gets(raw(key))
            await c.set(raw(key), b"meanwhile")
            return await c.cas(raw(key), more[0], unique)
        return await getattr(c, name)(raw(key), *more)

    for call in CALLS:
        try:
            show(call[0], call[1:], await run(*call))
        except (aiomcache.ClientException, aiomcache.ValidationException) as error:
            print(call[0], repr(call[1:])[:60], type(error).__name__, error)
    show("version", (), bool(await c.version()))
    show("flush_all", (), await c.flush_all())
    show("get_many", (), await c.multi_get(*map(raw, MANY)))
    await c.close()


pymemcache() if library == "pymemcache" else asyncio.run(aiomcache())
