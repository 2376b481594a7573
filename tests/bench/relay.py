"""Measures the relay: `scripts/bench --relay`.

First `tests/bench/relay.rs`: first snapshots of a default pool to 16 subscribers, deltas a second
to 16 subscribers, memory with 64. Then two nodes of two rings that only relays join, at defaults
of the relay: milliseconds from a write in one datacenter until the other one's TORC.WHERE knows
it, and the same for a removal.
"""
import argparse, os, socket, statistics, subprocess, sys, tempfile, time

from common import HOST, free_ports

WRITES = 200


class Client:
    """RESP over one connection, one request at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection((HOST, port), 10)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        data = [b"*%d\r\n" % len(words)]
        data += [b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words]
        self.socket.sendall(b"".join(data))
        return self.reply()

    def reply(self):
        line = self.file.readline().strip()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode()
        return rest.decode()


def until(what, done, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = done()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.001)
    raise SystemExit(f"{what}: not within {seconds} s")


def node(torc, folder, number, ports, other):
    """A ring of one node in datacenter `number`, that follows the relay at port `other`."""
    client, peer, stats, relay = ports
    path = os.path.join(folder, f"dc{number}.yml")
    with open(path, "w") as f:
        f.write(f"bench:\n  datacenter: dc{number}\n  rack: r1\n  tokens: '0'\n"
                f"  listen: {HOST}:{client}\n  dyn_listen: {HOST}:{peer}\n"
                f"  stats_listen: {HOST}:{stats}\n  datastore: embedded\n  workers: 1\n"
                f"  affinity: {{mode: advise}}\n"
                f"  relay: {{listen: '{HOST}:{relay}', upstreams: ['{HOST}:{other}']}}\n")
    log = open(os.path.join(folder, f"dc{number}.log"), "wb")
    return subprocess.Popen([torc, "-c", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def convergence(torc):
    with tempfile.TemporaryDirectory() as folder:
        ports = free_ports(8)
        one, two = ports[:4], ports[4:]
        nodes = [node(torc, folder, 1, one, two[3]), node(torc, folder, 2, two, one[3])]
        try:
            writer = until("the first node", lambda: Client(one[0]))
            reader = until("the second node", lambda: Client(two[0]))

            def holding(key):
                rows = reader.call("TORC.WHERE", key)[0]
                return dict(map(tuple, rows)).get("dc1")

            writer.call("SET", "first", "v")
            until("the filters are told", lambda: holding("first") == "maybe")
            for name, words, told in [("a write", ("SET", "v"), "maybe"),
                                      ("a removal", ("DEL",), "no")]:
                times = []
                for i in range(WRITES):
                    key = f"key:{i}"
                    begun = time.monotonic()
                    writer.call(words[0], key, *words[1:])
                    until(name, lambda: holding(key) == told)
                    times.append((time.monotonic() - begun) * 1000)
                print(f"{name} known in the other datacenter: {statistics.median(times):.1f} ms "
                      f"({min(times):.1f}-{max(times):.1f}, {WRITES} times)", flush=True)
        finally:
            for process in nodes:
                process.terminate()
            for process in nodes:
                process.wait(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torc", required=True)
    args = parser.parse_args()
    bench = subprocess.run(["cargo", "bench", "--quiet", "--bench", "relay"])
    if bench.returncode:
        sys.exit(bench.returncode)
    convergence(args.torc)


if __name__ == "__main__":
    main()
