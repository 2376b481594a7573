"""What the benches share."""
import json, socket, subprocess

HOST = "127.0.0.1"


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for s in held:
        s.bind((HOST, 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def bench_binary(name):
    """The path of a bench of this folder, built."""
    out = subprocess.run(["cargo", "bench", "--bench", name, "--no-run",
                          "--message-format=json"], check=True, stdout=subprocess.PIPE, text=True)
    lines = (json.loads(line) for line in out.stdout.splitlines() if line.startswith("{"))
    return [l["executable"] for l in lines
            if l.get("executable") and l["target"]["name"] == name][-1]
