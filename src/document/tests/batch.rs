//! Bodies of every form, exact bytes, and everything that is refused.

use crate::document::batch::{Batch, Documents, Format, Payload};
use crate::document::error::DocumentError;
use crate::document::object;
use crate::document::reserved::Reserved;
use crate::document::shard::{ShardSet, shard_for_key};
use crate::document::topology::{Topology, TopologyError};
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;

const SHARDS: u32 = 16;
const BYTES_MAX: usize = 1 << 20;

fn parse(format: Format, body: &str) -> Result<Documents, DocumentError> {
    Documents::parse(format, Bytes::copy_from_slice(body.as_bytes()), BYTES_MAX)
}

fn route(format: Format, body: &str) -> Result<Batch, DocumentError> {
    Batch::route(parse(format, body)?, "id", &Reserved::default(), SHARDS, 7)
}

fn sent(mut payload: Payload) -> String {
    let total = payload.total_bytes();
    let mut out = Vec::new();
    while let Some(piece) = payload.next_piece() {
        out.extend_from_slice(&piece);
    }
    assert_eq!(total, out.len() as u64, "the announced length is the length");
    String::from_utf8(out).unwrap()
}

fn sent_all(batch: Batch) -> String {
    sent(Arc::new(batch).payload(ShardSet::all(SHARDS)))
}

fn code(result: Result<Batch, DocumentError>) -> &'static str {
    result.expect_err("must be refused").code()
}

#[test]
fn documents_keep_their_bytes_behind_the_shard_field() {
    let body = "[ {\"f\": 1.10, \"n\":9007199254740993 ,\"id\":\"a\"},{ \"id\" : 42 }]";
    let (a, b) = (shard_for_key("a", SHARDS).0, shard_for_key("42", SHARDS).0);
    let expected = format!(
        "[{{\"_miroir_shard\":{a},\"f\": 1.10, \"n\":9007199254740993 ,\"id\":\"a\"}},\
         {{\"_miroir_shard\":{b}, \"id\" : 42 }}]"
    );
    assert_eq!(sent_all(route(Format::Json, body).unwrap()), expected);
}

#[test]
fn one_object_and_streams_of_objects_are_batches() {
    assert_eq!(route(Format::Json, " {\"id\":1}\n").unwrap().len(), 1);
    let stream = "{\"id\":\"n1\"}\n\n{\"id\":\"n2\"} {\"id\":\"n3\"}";
    let batch = route(Format::Ndjson, stream).unwrap();
    let ids: Vec<_> = batch.ids().map(|(id, _)| id.into_owned()).collect();
    assert_eq!(ids, ["n1", "n2", "n3"]);
    assert!(route(Format::Json, "[]").unwrap().is_empty());
    assert_eq!(sent_all(route(Format::Json, "[]").unwrap()), "[]");
}

#[test]
fn csv_columns_have_types_and_a_separator() {
    let body = "id;a:b:number;s;ok:boolean;f:number\nc1; 5 ;x;true;2.50\nc2;;;;\n";
    let batch = route(Format::Csv(b';'), body).unwrap();
    let json: serde_json::Value = serde_json::from_str(&sent_all(batch)).unwrap();
    let shard = |id| shard_for_key(id, SHARDS).0;
    let expected = serde_json::json!([
        {"_miroir_shard": shard("c1"), "id": "c1", "a:b": 5, "s": "x", "ok": true, "f": 2.5},
        {"_miroir_shard": shard("c2"), "id": "c2", "a:b": null, "s": null, "ok": null, "f": null},
    ]);
    assert_eq!(json, expected);
    assert_eq!(code(route(Format::Csv(b','), "id,n:number\n1,x\n")), "malformed_payload");
    assert_eq!(code(route(Format::Csv(b','), "id,n:boolean\n1,yes\n")), "malformed_payload");
    assert_eq!(code(route(Format::Csv(b','), "id,n\n1\n")), "malformed_payload");
}

#[test]
fn a_wide_csv_header_cannot_be_expanded_without_bound() {
    let header = "x".repeat(1000);
    let body = format!("id,{header}\n{}", "1,\n".repeat(1000));
    let result = Documents::parse(Format::Csv(b','), Bytes::from(body), 100_000);
    assert_eq!(result.unwrap_err(), DocumentError::TooLarge(100_000));
}

#[test]
fn malformed_bodies_say_what_is_wrong() {
    for body in ["{", "[{]", "5", "null", "[5]", "[[]]", "[{}] x", "{\"id\":1}{\"id\":2}", " "] {
        assert_eq!(code(route(Format::Json, body)), "malformed_payload", "{body}");
    }
    assert_eq!(code(route(Format::Ndjson, "{\"id\":1}\n5")), "malformed_payload");
    assert_eq!(code(route(Format::Json, "")), "missing_payload");
    let error = route(Format::Json, "5").unwrap_err().to_string();
    assert!(error.contains("data are neither an object nor a list of objects"), "{error}");
    let invalid = Bytes::from_static(b"[{\"id\":\"\xff\"}]");
    let error = Documents::parse(Format::Json, invalid, BYTES_MAX).unwrap_err();
    assert_eq!(error.code(), "malformed_payload");
}

#[test]
fn deep_documents_and_broken_escapes_are_refused_before_backends_see_them() {
    let nested = |levels: usize| {
        let arrays = levels - 1;
        format!("[{{\"id\":1,\"d\":{}{}}}]", "[".repeat(arrays), "]".repeat(arrays))
    };
    assert!(route(Format::Json, &nested(object::DEPTH_MAX)).is_ok());
    assert_eq!(code(route(Format::Json, &nested(object::DEPTH_MAX + 1))), "malformed_payload");
    assert_eq!(code(route(Format::Json, &nested(100_000))), "malformed_payload");
    for escape in ["\\ud800", "\\udc00", "\\ud800\\u0041", "\\ud83dx"] {
        let body = format!("[{{\"id\":1,\"d\":[\"{escape}\"]}}]");
        assert_eq!(code(route(Format::Json, &body)), "malformed_payload", "{escape}");
    }
    assert!(route(Format::Json, "[{\"id\":1,\"d\":\"\\ud83d\\ude00 \\\\ \\\" {\"}]").is_ok());
}

#[test]
fn the_last_of_equal_keys_counts_and_escaped_names_are_the_same_name() {
    let batch = route(Format::Json, "[{\"id\":\"d1\",\"id\":\"d2\"}]").unwrap();
    assert_eq!(batch.ids().next().unwrap().0, "d2");
    let batch = route(Format::Json, "[{\"\\u0069d\":\"esc\"}]").unwrap();
    assert_eq!(batch.ids().next().unwrap().0, "esc");
    let batch = route(Format::Json, "[{\"id\":\"\\u0061b\"}]").unwrap();
    assert_eq!(batch.ids().next().unwrap(), ("ab".into(), shard_for_key("ab", SHARDS)));
}

#[test]
fn one_bad_document_refuses_the_batch() {
    let refused = |tail: &str| code(route(Format::Json, &format!("[{{\"id\":1}},{tail}]")));
    assert_eq!(refused("{\"x\":1}"), "miroir_primary_key_required");
    assert_eq!(refused("{\"id\":null}"), "miroir_primary_key_required");
    assert_eq!(refused("{\"id\":1.5}"), "invalid_document_id");
    assert_eq!(refused("{\"id\":\"a b\"}"), "invalid_document_id");
    assert_eq!(refused("{\"id\":2,\"_miroir_shard\":1}"), "miroir_reserved_field");
    assert_eq!(refused("{\"id\":2,\"_miroir\\u005fshard\":1}"), "miroir_reserved_field");
    assert_eq!(refused("{\"_miroir_shard\":1}"), "miroir_reserved_field", "before the key");
    let nested = "[{\"id\":2,\"x\":{\"_miroir_shard\":1},\"_miroir_custom\":1}]";
    assert!(route(Format::Json, nested).is_ok(), "only top-level reserved names count");
}

#[test]
fn the_write_time_is_injected_with_anti_entropy() {
    let reserved = Reserved { anti_entropy: true, ttl: false };
    let documents = parse(Format::Json, "{\"id\":1}").unwrap();
    let batch = Batch::route(documents, "id", &reserved, 1, 77).unwrap();
    let text = sent(Arc::new(batch).payload(ShardSet::all(1)));
    assert_eq!(text, "[{\"_miroir_shard\":0,\"_miroir_updated_at\":77,\"id\":1}]");
}

#[test]
fn large_documents_are_shared_and_pieces_stay_small() {
    let large = "x".repeat(300_000);
    let small = "y".repeat(1_000);
    let mut body = String::from("[");
    for i in 0..200 {
        let pad = if i % 50 == 7 { &large } else { &small };
        body.push_str(&format!("{{\"id\":{i},\"p\":\"{pad}\"}},"));
    }
    body.pop();
    body.push(']');
    let bytes = Bytes::from(body);
    let documents = Documents::parse(Format::Json, bytes.clone(), 4 << 20).unwrap();
    let batch = Batch::route(documents, "id", &Reserved::default(), SHARDS, 0).unwrap();
    let mut payload = Arc::new(batch).payload(ShardSet::all(SHARDS));
    let range = bytes.as_ptr() as usize..bytes.as_ptr() as usize + bytes.len();
    let mut shared = 0;
    while let Some(piece) = payload.next_piece() {
        if range.contains(&(piece.as_ptr() as usize)) {
            shared += 1;
        } else {
            assert!(piece.len() < 64 * 1024 + 16 * 1024 + 200);
        }
    }
    assert_eq!(shared, 4);
}

#[test]
fn topologies_that_cannot_serve_are_refused() {
    let ids = |names: &[&str]| names.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let new = |shards, rf, groups: &[Vec<String>]| Topology::new(shards, rf, groups).unwrap_err();
    assert_eq!(new(0, 1, &[ids(&["a"])]), TopologyError::Shards(0));
    assert_eq!(new(1, 0, &[ids(&["a"])]), TopologyError::NoReplicas);
    assert_eq!(new(1, 1, &[]), TopologyError::NoGroups);
    let small = TopologyError::SmallGroup { group: 1, members: 1, rf: 2 };
    assert_eq!(new(1, 2, &[ids(&["a", "b"]), ids(&["c"])]), small);
    let twice = TopologyError::DuplicateId("a".into());
    assert_eq!(new(1, 1, &[ids(&["a"]), ids(&["a"])]), twice);
    let one = Topology::new(8, 1, &[ids(&["b", "a"])]).unwrap();
    let other = Topology::new(8, 1, &[ids(&["a", "b"])]).unwrap();
    assert_eq!(one.fingerprint(), other.fingerprint(), "the order of the list does not matter");
    let more = Topology::new(9, 1, &[ids(&["a", "b"])]).unwrap();
    assert_ne!(one.fingerprint(), more.fingerprint());
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        for format in [Format::Json, Format::Ndjson, Format::Csv(b',')] {
            if let Ok(documents) = Documents::parse(format, Bytes::from(body.clone()), BYTES_MAX) {
                let _ = Batch::route(documents, "id", &Reserved::default(), SHARDS, 0);
            }
        }
    }

    #[test]
    fn what_is_sent_is_what_came_plus_the_shard(
        ids in proptest::collection::vec("[a-zA-Z0-9_-]{1,20}", 1..20),
        text in ".{0,40}",
    ) {
        let documents: Vec<_> =
            ids.iter().map(|id| serde_json::json!({"t": text, "id": id, "n": [1, {}]})).collect();
        let body = serde_json::Value::from(documents.clone()).to_string();
        let sent: Vec<serde_json::Value> =
            serde_json::from_str(&sent_all(route(Format::Json, &body).unwrap())).unwrap();
        for ((mut got, expected), id) in sent.into_iter().zip(documents).zip(&ids) {
            let shard = got.as_object_mut().unwrap().remove("_miroir_shard").unwrap();
            prop_assert_eq!(shard, shard_for_key(id, SHARDS).0);
            prop_assert_eq!(got, expected);
        }
    }
}
