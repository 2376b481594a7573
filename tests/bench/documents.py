"""Measures the document gateway beside the server behind it: `scripts/bench --documents`.

One node with an embedded store and one document server, both also asked directly. The server is
a Meilisearch when MEILISEARCH_BIN names one; else a stand-in that accepts everything at once and
stores nothing, so that what is measured is the gateway. The node runs on core 0, server and load
on core 1. Shown: documents a second in batches of 1, 100 and 10,000 over 4 connections; latency
of one small write at a time; memory the node needs for one batch of 100 MiB.
"""
import argparse, json, os, socket, socketserver, statistics, subprocess, sys, tempfile
import threading, time

from common import HOST, free_ports

CONNECTIONS = 4
BATCHES = [(1, 2000), (100, 400), (10000, 20)]
LARGE_BYTES = 100 * 1024 * 1024
# A gateway that just started is not sure that nobody else writes, and notes what it does.
SETTLE_SECONDS = 11


class Sink(socketserver.StreamRequestHandler):
    """Answers as a Meilisearch that has the index `bench` and never runs out of room."""
    disable_nagle_algorithm = True
    tasks = 0

    def handle(self):
        while True:
            line = self.rfile.readline().split()
            if not line:
                return
            length = 0
            while (header := self.rfile.readline().strip()):
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            while length > 0:
                length -= len(self.rfile.read(min(length, 1 << 20)))
            status, body = self.answer(line[0].decode(), line[1].decode())
            text = json.dumps(body).encode()
            self.wfile.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n"
                             b"Content-Length: %d\r\n\r\n%s" % (status, len(text), text))

    def answer(self, method, path):
        if method in ("POST", "PUT", "PATCH", "DELETE"):
            Sink.tasks += 1
            return 202, {"taskUid": Sink.tasks, "indexUid": "bench", "status": "enqueued",
                         "type": "documentAdditionOrUpdate", "enqueuedAt": "2026-01-01T00:00:00Z"}
        if path.startswith("/indexes/bench/settings"):
            return 200, ["_miroir_shard"]
        if path.startswith("/indexes/bench"):
            return 200, {"uid": "bench", "createdAt": "", "updatedAt": "", "primaryKey": "id"}
        if path.startswith("/tasks?"):
            return 200, {"results": [], "total": 0, "limit": 1, "from": None, "next": None}
        return 200, {"status": "available"}


def sink(port):
    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True
    Server((HOST, port), Sink).serve_forever()


class Client:
    """One connection; what it sends is made beforehand."""

    def __init__(self, port):
        self.socket = socket.create_connection((HOST, port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(120)

    def ask(self, request):
        self.socket.sendall(request)
        got = b""
        while b"\r\n\r\n" not in got:
            part = self.socket.recv(65536)
            if not part:
                raise SystemExit("the server closed the connection")
            got += part
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(l.split(b":")[1]) for l in lines if l.startswith(b"content-length"))
        while len(body) < length:
            body += self.socket.recv(65536)
        return int(head.split()[1]), body


def request(method, path, body=b""):
    return (f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def batch(first, count, text="lorem ipsum dolor sit amet " * 5):
    documents = [{"id": i, "title": f"document {i}", "text": text, "n": i * 7}
                 for i in range(first, first + count)]
    return json.dumps(documents).encode()


def wait_until(port, path, seconds=30):
    end = time.time() + seconds
    while time.time() < end:
        try:
            if Client(port).ask(request("GET", path))[0] == 200:
                return
        except (OSError, SystemExit):
            pass
        time.sleep(0.1)
    raise SystemExit(f"port {port} does not answer {path}")


def documents_a_second(port, size, count):
    """Batches over several connections, until all are accepted."""
    bodies = [request("POST", "/indexes/bench/documents", batch(i * size, size))
              for i in range(min(count, 16))]
    left, lock, refused = [count], threading.Lock(), []

    def work():
        client = Client(port)
        while True:
            with lock:
                left[0] -= 1
                number = left[0]
            if number < 0:
                return
            status, body = client.ask(bodies[number % len(bodies)])
            if status != 202:
                refused.append((status, body))
    started = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if refused:
        raise SystemExit(f"refused: {refused[0]}")
    return size * count / (time.perf_counter() - started)


def latencies_ms(port, count=1000):
    client, body = Client(port), request("POST", "/indexes/bench/documents", batch(0, 1))
    times = []
    for _ in range(count + 50):
        started = time.perf_counter()
        client.ask(body)
        times.append((time.perf_counter() - started) * 1e3)
    times = sorted(times[50:])
    return times[len(times) // 2], times[len(times) * 99 // 100]


def resident(pid, name="VmRSS"):
    with open(f"/proc/{pid}/status") as f:
        return next(int(l.split()[1]) * 1024 for l in f if l.startswith(name + ":"))


def peak_of_large_batch(port, pid):
    """Bytes by which the node grows while it takes one batch of almost LARGE_BYTES."""
    text = "x" * 960
    body = batch(0, LARGE_BYTES // 1040, text)
    assert 0.9 * LARGE_BYTES < len(body) <= LARGE_BYTES, len(body)
    whole = request("POST", "/indexes/bench/documents", body)
    with open(f"/proc/{pid}/clear_refs", "w") as f:
        f.write("5")  # The high-water mark begins anew.
    before = resident(pid)
    status, answer = Client(port).ask(whole)
    if status != 202:
        raise SystemExit(f"refused: {status} {answer}")
    return len(body), resident(pid, "VmHWM") - before


def start(folder, torc):
    """The server, then the node: (process, port) of each."""
    server_port, clients, peers, admin, gateway = free_ports(5)
    meilisearch = os.environ.get("MEILISEARCH_BIN")
    server = [sys.executable, os.path.abspath(__file__), "--sink", str(server_port)]
    if meilisearch:
        server = [meilisearch, "--http-addr", f"{HOST}:{server_port}", "--no-analytics",
                  "--db-path", os.path.join(folder, "data"),
                  "--http-payload-size-limit", "104857600"]
    config = os.path.join(folder, "node.yml")
    with open(config, "w") as f:
        f.write(f"bench:\n  tokens: 0\n  workers: 1\n  datastore: embedded\n"
                f"  listen: {HOST}:{clients}\n  dyn_listen: {HOST}:{peers}\n"
                f"  stats_listen: {HOST}:{admin}\n  documents:\n    listen: {HOST}:{gateway}\n"
                f"    backends:\n      b0: {{url: 'http://{HOST}:{server_port}', group: 0}}\n")
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield subprocess.Popen(["taskset", "-c", "1"] + server, cwd=folder, **quiet), server_port
    wait_until(server_port, "/health")
    yield subprocess.Popen(["taskset", "-c", "0", torc, "run", "-c", config], **quiet), gateway
    wait_until(gateway, "/_miroir/ready")
    time.sleep(SETTLE_SECONDS)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torc", default="target/release/torc")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sink", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sink:
        return sink(args.sink)
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory(prefix="torc-bench-") as folder:
        running = []
        try:
            for process, port in start(folder, args.torc):
                running.append((process, port))
            measure(running, args.repeats)
        finally:
            for process, _ in running:
                process.kill()
                process.wait()


def measure(running, repeats):
    (_, direct), (node, gateway) = running
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
          f"server: {os.environ.get('MEILISEARCH_BIN') or 'a stand-in that stores nothing'}")
    for size, count in BATCHES:
        rates = [(documents_a_second(direct, size, count), documents_a_second(gateway, size, count))
                 for _ in range(repeats)]
        ratio = statistics.median(through / alone for alone, through in rates)
        alone, through = (statistics.median(rate[i] for rate in rates) for i in (0, 1))
        print(f"batches of {size:>6}: direct {alone:>9.0f} documents/s, through the gateway "
              f"{through:>9.0f}, ratio {ratio:.2f}", flush=True)
    runs = [(latencies_ms(direct), latencies_ms(gateway)) for _ in range(repeats)]
    for i, name in enumerate(("p50", "p99")):
        alone, through = (statistics.median(run[j][i] for run in runs) for j in (0, 1))
        print(f"one document, {name}: direct {alone:.2f} ms, through the gateway {through:.2f} ms, "
              f"added {through - alone:.2f} ms")
    size, grown = peak_of_large_batch(gateway, node.pid)
    print(f"one batch of {size / 2**20:.0f} MiB: the node grows by {grown / 2**20:.0f} MiB, "
          f"{grown / size:.2f} of the batch")


if __name__ == "__main__":
    main()
