//! The recorded messages and verdicts of the contract.

use bytes::Bytes;
use prost::Message;
use serde_json::Value;

use super::descriptor::Descriptor;
use super::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION};
use super::topology::Entry;
use super::{Fault, ProducerKey, proto, reason, vectors};
use crate::ckf::digest::{self, Selection};
use crate::ckf::hashing::{HashFormat, block_hashes, salt_seed, sequence_hashes};

/// Decodes and encodes again; the verdict of our checks where there are some.
fn roundtrip(kind: &str, bytes: &[u8]) -> (Vec<u8>, Result<(), Fault>) {
    fn again<M: Message + Default>(
        bytes: &[u8],
        check: impl Fn(&M) -> Result<(), Fault>,
    ) -> (Vec<u8>, Result<(), Fault>) {
        let message = M::decode(bytes).expect("a message");
        (message.encode_to_vec(), check(&message))
    }
    macro_rules! plain {
        ($($name:ident),+) => {
            match kind {
                $(stringify!($name) => again::<proto::$name>(bytes, |_| Ok(())),)+
                "ProducerIdentity" => again::<proto::ProducerIdentity>(bytes, |message| {
                    let key = ProducerKey::try_from(message)?;
                    // What is valid survives our own types.
                    assert_eq!(&proto::ProducerIdentity::from(&key), message);
                    Ok(())
                }),
                "KvPoolDescriptor" => again::<proto::KvPoolDescriptor>(bytes, |message| {
                    let pool = Descriptor::try_from(message)?;
                    assert_eq!(&proto::KvPoolDescriptor::from(&pool), message);
                    Ok(())
                }),
                "TopologyEntry" => again::<proto::TopologyEntry>(bytes, |message| {
                    let entry = Entry::try_from(message)?;
                    assert_eq!(&proto::TopologyEntry::from(&entry), message);
                    Ok(())
                }),
                "KvPoolId" => again::<proto::KvPoolId>(bytes, |message| {
                    let pool = super::key::pool_id(message)?;
                    assert_eq!(&super::key::pool_message(&pool), message);
                    Ok(())
                }),
                other => panic!("unknown type {other}"),
            }
        };
    }
    plain!(
        RelayInfoRequest,
        RelayInfo,
        WatchKvPoolCatalogRequest,
        SubscribeKvPoolRequest,
        SubscribeServingLoadRequest,
        KvPoolCatalogUpdate,
        FilterUpdate,
        ServingReadinessUpdate,
        KvPoolLoadUpdate,
        ServingLoadUpdate
    )
}

#[test]
fn recorded_messages_keep_their_bytes() {
    let rows = vectors::rows("messages").into_iter().chain(vectors::rows("serving_load_messages"));
    let mut count = 0;
    for row in rows {
        let bytes = vectors::bytes(&row["hex"]);
        let (again, verdict) = roundtrip(row["type"].as_str().unwrap(), &bytes);
        assert_eq!(vectors::hex(&again), vectors::hex(&bytes), "{}", row["name"]);
        assert_eq!(verdict, Ok(()), "{}", row["name"]);
        count += 1;
    }
    assert_eq!(count, 21);
}

#[test]
fn verdicts_match_the_reference() {
    let rows = vectors::rows("validation");
    assert_eq!(rows.len(), 61);
    for row in rows {
        let bytes = vectors::bytes(&row["hex"]);
        let (again, verdict) = roundtrip(row["type"].as_str().unwrap(), &bytes);
        assert_eq!(vectors::hex(&again), vectors::hex(&bytes), "{}", row["name"]);
        let fault = verdict.err();
        assert_eq!(fault.map(|f| f.label()), row["fault"].as_str(), "{}", row["name"]);
        let unsupported = fault.map(|f| f.is_unsupported());
        assert_eq!(unsupported, row["unsupported"].as_bool(), "{}", row["name"]);
        if let Some(reply) = row.get("subscribe_reply") {
            let reason = match unsupported {
                Some(true) => reason::Reason::UnsupportedFeature,
                Some(false) | None => reason::Reason::InvalidRequest,
            };
            assert_eq!(reply["trailer"].as_str(), Some(reason.as_str_name()), "{}", row["name"]);
        }
    }
}

#[test]
fn bytes_of_other_versions_are_read_as_the_reference_reads_them() {
    let raw = |name: &str| -> Value {
        let rows = vectors::rows("raw");
        rows.into_iter().find(|row| row["name"] == name).expect("a raw vector")
    };
    let row = raw("model_target_future_alternative_tag_3");
    let target = proto::ModelTarget::decode(&vectors::bytes(&row["hex"])[..]).unwrap();
    assert_eq!(target.target, None);
    let row = raw("relay_info_request_with_unknown_string_field_100");
    let request = proto::RelayInfoRequest::decode(&vectors::bytes(&row["hex"])[..]).unwrap();
    assert_eq!(request.contract_marker, CONTRACT_MARKER);
    let row = raw("marker_encoded_as_varint");
    assert!(proto::RelayInfoRequest::decode(&vectors::bytes(&row["hex"])[..]).is_err());
    let row = raw("pool_roles_unpacked_form");
    let pool = proto::KvPoolDescriptor::decode(&vectors::bytes(&row["hex"])[..]).unwrap();
    assert_eq!(pool.pool_roles, [2, 1]);
}

#[test]
fn constants_match_the_vectors() {
    let all = vectors::all();
    let constants = &all["constants"];
    assert_eq!(constants["contract_marker"], CONTRACT_MARKER);
    assert_eq!(constants["protocol_version"], PROTOCOL_VERSION);
    assert_eq!(constants["service"], super::SERVICE);
    assert_eq!(constants["error_trailer"], reason::TRAILER);
}

#[test]
fn identities_and_query_hashes_match_the_vectors() {
    let shared = Selection::explicit([("authority", "shared")]).unwrap();
    let two = Selection::explicit([("zeta", "1"), ("alpha", "2")]).unwrap();
    let model = Selection::defaults(["repo/model"]);
    let endpoint = Selection::defaults(["ns", "backend", "generate"]);
    let standard = HashFormat::Standard;
    let ours = [
        digest::cache_semantics(&model, 16, standard).to_string(),
        digest::cache_semantics(&model, 16, HashFormat::Eagle).to_string(),
        digest::cache_semantics(&shared, 16, standard).to_string(),
        digest::cache_semantics(&two, 16, standard).to_string(),
        digest::routing_scope(&endpoint).to_string(),
        digest::routing_scope(&shared).to_string(),
    ];
    for (row, ours) in vectors::rows("identity_digests").iter().zip(ours) {
        assert_eq!(row["digest_hex"].as_str(), Some(&ours[..]), "{}", row["name"]);
    }
    for row in vectors::rows("dc_ids") {
        let id = digest::dc_id(row["name"].as_str().unwrap());
        assert_eq!(row["dc_id_hex"].as_str(), Some(&id.to_string()[..]));
    }
    for row in vectors::rows("query_hashes") {
        let tokens: Vec<u32> =
            row["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect();
        let format = if row["eagle"] == true { HashFormat::Eagle } else { standard };
        let salt = salt_seed(row["lora"].as_str(), row["cache_namespace"].as_str());
        let size = row["kv_block_size"].as_u64().unwrap() as usize;
        let blocks: Vec<_> = block_hashes(&tokens, size, format, salt).collect();
        let text = |hashes: Vec<u64>| -> Value {
            hashes.into_iter().map(|hash| format!("{hash:#018x}")).collect()
        };
        assert_eq!(text(blocks.iter().map(|b| b.0).collect()), row["block_hashes"]);
        let chain = sequence_hashes(blocks.into_iter()).map(|s| s.0).collect();
        assert_eq!(text(chain), row["sequence_hashes"], "{}", row["name"]);
    }
    // Payloads are not copied out of the receive buffer.
    let update: proto::FilterUpdate = vectors::message("filter_delta_0_to_1");
    let _: &Bytes = &update.payload;
}
