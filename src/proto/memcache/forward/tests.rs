use super::*;
use crate::proto::memcache::decode::{McDecoded, McDecoder, McLimits};

fn with<T>(stream: &[u8], test: impl FnOnce(&McRequest, &Args<'_>) -> T) -> T {
    let mut spans = Vec::new();
    match McDecoder::default().decode(stream, &McLimits::default(), &mut spans) {
        Ok(Some(McDecoded::Request(request))) => {
            assert_eq!(request.len, stream.len());
            test(&request, &Args::new(stream, &spans))
        }
        other => panic!("{other:?}"),
    }
}

fn written(stream: &[u8], now_s: Option<u64>) -> String {
    with(stream, |request, args| {
        let mut out = Vec::new();
        write(request, args, now_s, &mut out);
        String::from_utf8(out).unwrap()
    })
}

fn outcome_of(stream: &[u8], reply: &[u8]) -> Option<String> {
    with(stream, |request, args| {
        let mut out = Vec::new();
        let changed = outcome(request, args, reply, 1_000_000, &mut out);
        assert_eq!(changed, !out.is_empty());
        changed.then(|| String::from_utf8(out).unwrap())
    })
}

#[test]
fn every_request_is_sent_so_that_it_is_answered() {
    assert_eq!(written(b"  delete  k noreply\n", None), "delete k\r\n");
    assert_eq!(written(b"set k 0 5 2 noreply\r\nab\r\n", None), "set k 0 5 2\r\nab\r\n");
    assert_eq!(written(b"mg q v q k\r\n", None), "mg q v k\r\n");
    assert_eq!(written(b"md k q1 k\r\n", None), "md k k\r\n");
    assert_eq!(written(b"ms k 1 q T5\r\na\r\n", None), "ms k 1 T5\r\na\r\n");
    assert_eq!(written(b"get a\0b\r\n", None), "get a\r\n");
}

#[test]
fn relative_times_become_points_in_time() {
    let now = Some(1_000_000);
    assert_eq!(written(b"set k 0 5 1\r\na\r\n", now), "set k 0 1000005 1\r\na\r\n");
    assert_eq!(written(b"set k 0 0 1\r\na\r\n", now), "set k 0 0 1\r\na\r\n");
    assert_eq!(written(b"set k 0 08 1\r\na\r\n", None), "set k 0 08 1\r\na\r\n");
    assert_eq!(written(b"set k 0 +8 1\r\na\r\n", None), "set k 0 8 1\r\na\r\n");
    // Over at once, in digits: nodes of the reference know no signs.
    for now in [now, None] {
        assert_eq!(written(b"set k 0 -1 1\r\na\r\n", now), "set k 0 2592001 1\r\na\r\n");
    }
    assert_eq!(written(b"set k 0 2592001 1\r\na\r\n", now), "set k 0 2592001 1\r\na\r\n");
    assert_eq!(written(b"touch k 2592000\r\n", now), "touch k 3592000\r\n");
    assert_eq!(written(b"gat 5 T5 b\r\n", now), "gat 1000005 T5 b\r\n");
    assert_eq!(written(b"mg T5 T5 N9 v\r\n", now), "mg T5 T1000005 N1000009 v\r\n");
}

#[test]
fn what_one_replica_decided_is_done_by_the_others() {
    let stored = b"STORED\r\n";
    assert_eq!(
        outcome_of(b"add k 7 5 2 noreply\r\nab\r\n", stored).unwrap(),
        "set k 7 1000005 2\r\nab\r\n"
    );
    assert_eq!(outcome_of(b"cas k 0 0 1 99\r\na\r\n", stored).unwrap(), "set k 0 0 1\r\na\r\n");
    assert_eq!(outcome_of(b"cas k 0 0 1 99\r\na\r\n", b"EXISTS\r\n"), None);
    assert_eq!(
        outcome_of(b"ms k 2 b ME T5 c O9 C7\r\nab\r\n", b"HD c8\r\n").unwrap(),
        "ms k 2 b T1000005\r\nab\r\n"
    );
    assert_eq!(outcome_of(b"ms k 2 ME\r\nab\r\n", b"NS\r\n"), None);
    assert_eq!(outcome_of(b"md k C7 q I T5\r\n", b"HD\r\n").unwrap(), "md k I T1000005\r\n");
    assert_eq!(outcome_of(b"ma k C7 D3 MD v\r\n", b"VA 1\r\n5\r\n").unwrap(), "ma k D3 MD\r\n");
    assert_eq!(outcome_of(b"mg k c T5\r\n", b"HD c8\r\n").unwrap(), "mg k T1000005\r\n");
    assert_eq!(outcome_of(b"mg k c T5\r\n", b"EN\r\n"), None);
    assert_eq!(outcome_of(b"gats 5 k\r\n", b"END\r\n").unwrap(), "gats 1000005 k\r\n");
    assert_eq!(outcome_of(b"gets k\r\n", b"END\r\n"), None);
}

#[test]
fn the_ring_places_a_key_as_it_is_meant() {
    let key = |stream: &[u8]| {
        with(stream, |request, args| {
            let mut scratch = Vec::new();
            ring_key(request, args, &mut scratch).map(<[u8]>::to_vec)
        })
    };
    assert_eq!(key(b"get a b\r\n").unwrap(), b"a");
    assert_eq!(key(b"gat 5 a\r\n").unwrap(), b"a");
    assert_eq!(key(b"mg Zm9v b v\r\n").unwrap(), b"foo");
    assert_eq!(key(b"me Zm9v b\r\n").unwrap(), b"foo");
    assert_eq!(key(b"ms Zm8= 0 b\r\n\r\n").unwrap(), b"fo");
    assert_eq!(key(b"mg Zm9v v\r\n").unwrap(), b"Zm9v");
    assert_eq!(key(b"mg !!! b\r\n"), None);
    assert_eq!(key(b"version\r\n"), None);
}

#[test]
fn an_old_deletes_hold_time_is_left_out() {
    assert_eq!(written(b"delete k 0\r\n", None), "delete k\r\n");
    assert_eq!(written(b"delete k 0 noreply\r\n", None), "delete k\r\n");
}

#[test]
fn a_stores_mark_is_taken_off_its_ids() {
    let mark = Mark::new(0x0102);
    let id = mark.apply(77);
    let for_store = |stream: String| {
        with(stream.as_bytes(), |request, args| {
            let mut out = Vec::new();
            write_for(request, args, mark, &mut out);
            String::from_utf8(out).unwrap()
        })
    };
    assert_eq!(for_store(format!("cas k 0 9 1 {id}\r\na\r\n")), "cas k 0 9 1 77\r\na\r\n");
    assert_eq!(for_store(format!("md k q C{id} k\r\n")), "md k C77 k\r\n");
    assert_eq!(for_store("ma k C0 D5\r\n".into()), "ma k C0 D5\r\n");
    assert_eq!(for_store("add k 77 0 2\r\n77\r\n".into()), "add k 77 0 2\r\n77\r\n");
}
