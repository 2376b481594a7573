#!/usr/bin/env python3
"""A consumer of the relay made by another party's tools: grpcio, generated from relay.proto.

    relay.py HOST:PORT FOLDER_OF_PROTO SEQUENCE

Reads every stream once and the first pool's filter up to a sequence, then prints what it found,
one `name value` a line; the filter as the SHA-256 of its words. Reads a line of its standard
input before the last stream, so that the caller can change something between snapshot and delta.
"""
import hashlib, os, struct, sys, tempfile

import grpc
import xxhash
from grpc_tools import protoc

address, protos, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
generated = tempfile.TemporaryDirectory()
arguments = ["protoc", f"-I{protos}", f"--python_out={generated.name}",
             f"--grpc_python_out={generated.name}", os.path.join(protos, "relay.proto")]
assert protoc.main(arguments) == 0, "the schema compiles"
sys.path.insert(0, generated.name)
import relay_pb2 as pb
import relay_pb2_grpc as rpc

MARKER = 0x4B565231
channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 8 << 20)])
relay = rpc.KvEventRelayStub(channel)


def say(name, value):
    print(name, value, flush=True)


def envelope(message):
    assert message.contract_marker == MARKER and message.protocol_version == 1
    assert message.relay.relay_incarnation != 0
    return message


def first(stream):
    message = envelope(next(iter(stream)))
    stream.cancel()
    return message


def decode(payload, producer):
    """CBI1, from its description: kind, epoch, and what the body says."""
    magic, version, kind, bits, slots, form = struct.unpack_from("<4sHHBBH", payload)
    seed, buckets, dc, epoch, checksum = struct.unpack_from("<QQQQI", payload, 12)
    fmt = producer.ckf_format
    assert (magic, version, bits, slots, form) == (b"CBI1", 1, 16, 4, 1)
    assert (seed, buckets, dc) == (fmt.seed, fmt.bucket_count, producer.pool_id.dc_id)
    body = payload[48:]
    assert xxhash.xxh3_64_intdigest(body) & 0xFFFFFFFF == checksum
    if kind == 1:
        index, count, offset = struct.unpack_from("<IIQ", body)
        return kind, epoch, (index, count, offset, body[16:])
    base, count = struct.unpack_from("<QI", body)
    assert len(body) == 12 + 12 * count
    images = list(struct.iter_unpack("<IQ", body[12:]))
    assert len({bucket for bucket, _ in images}) == count > 0
    return kind, epoch, (base, images)


info = envelope(relay.GetRelayInfo(pb.RelayInfoRequest(contract_marker=MARKER)))
say("relay", f"{info.relay.drt_instance_id} {info.relay.relay_incarnation}")
who = dict(subscriber_id="python", contract_marker=MARKER)
catalog = first(relay.WatchKvPoolCatalog(pb.WatchKvPoolCatalogRequest(**who)))
pools = catalog.snapshot.pools
say("pools", len(pools))
pool = pools[0]
say("models", ",".join(r.canonical_model_id for r in pool.registrations))
ready = first(relay.SubscribeServingReadiness(pb.SubscribeServingReadinessRequest(**who)))
say("readiness", len(ready.entries))
load = relay.SubscribeKvPoolLoad(pb.SubscribeKvPoolLoadRequest(**who))
windows = [envelope(next(load)) for _ in range(3)]
load.cancel()
assert [w.window_sequence - windows[0].window_sequence for w in windows] == [0, 1, 2]
say("load", f"{windows[2].pools[0].kv_used_blocks}/{windows[2].pools[0].total_kv_blocks}")
serving = first(relay.SubscribeServingLoad(pb.SubscribeServingLoadRequest(**who)))
say("serving", len(serving.pools))

try:
    next(relay.SubscribeKvPool(pb.SubscribeKvPoolRequest(**who)))
    assert False, "a producer must be named"
except grpc.RpcError as error:
    trailers = dict(error.trailing_metadata())
    say("refused", f"{error.code().name} {trailers['kv-relay-error-reason']}")

stream = relay.SubscribeKvPool(pb.SubscribeKvPoolRequest(expected_producer=pool.producer, **who))
words, sequence = bytearray(), None
for frame in stream:
    envelope(frame)
    assert frame.producer == pool.producer
    if frame.kind == pb.FILTER_UPDATE_KIND_HEARTBEAT:
        assert frame.base_sequence == frame.sequence == sequence and not frame.payload
        continue
    kind, epoch, body = decode(frame.payload, pool.producer)
    assert kind == frame.kind and epoch == frame.sequence
    if kind == 1:
        index, count, offset, part = body
        assert frame.base_sequence == frame.sequence and offset * 8 == len(words)
        words += part
        if index + 1 < count:
            continue
        assert len(words) == pool.producer.ckf_format.bucket_count * 8
        sequence = epoch
        say("snapshot", sequence)
        sys.stdin.readline()
    else:
        base, images = body
        assert base == frame.base_sequence == sequence and epoch == sequence + 1
        for bucket, word in images:
            struct.pack_into("<Q", words, bucket * 8, word)
        sequence = epoch
    if sequence >= wanted:
        break
stream.cancel()
say("filter", hashlib.sha256(words).hexdigest())
