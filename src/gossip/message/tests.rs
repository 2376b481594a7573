//! Messages round trip, stay within their limits and skip what they do not know.

use super::*;

fn record() -> Record {
    let tokens = ["7", "0", "00", "-5", "0x000102030405060708090a0b0c0d0e0f"];
    let tokens = tokens.map(|text| DynToken::parse_config(text).unwrap());
    Record {
        slot: Slot::new("dc1", "r1", tokens[0]),
        tokens: tokens.to_vec(),
        addr: Addr::new("::1", 8101),
        name: "pretty".into(),
        kind: Kind::Torc,
        claim: Claim::Joining,
        generation: u64::MAX,
        version: 3,
        gone_at_ms: 4,
        attributes: [("a".to_owned(), "b".to_owned())].into(),
    }
}

const BEAT: Heartbeat = Heartbeat { beat: 1234, age_ms: Some(560) };

#[test]
fn records_round_trip() {
    let message = RecordMsg::new(&record(), BEAT);
    let bytes = message.encode_to_vec();
    let read = RecordMsg::decode(&bytes[..]).unwrap().read();
    assert_eq!(read, Some((record(), BEAT)));
    let mut with_more = bytes.clone();
    with_more.extend_from_slice(&[0xa2, 0x06, 1, b'x']);
    let read = RecordMsg::decode(&with_more[..]).unwrap().read();
    assert_eq!(read, Some((record(), BEAT)), "fields of later versions");
}

#[test]
fn records_beyond_the_limits_are_refused() {
    let good = RecordMsg::new(&record(), BEAT);
    let changes: [fn(&mut RecordMsg); 12] = [
        |m| m.dc.clear(),
        |m| m.rack = "r".repeat(NAME_BYTES_MAX + 1),
        |m| m.name.clear(),
        |m| m.host.clear(),
        |m| m.port = 0,
        |m| m.port = 65_536,
        |m| m.tokens.clear(),
        |m| m.tokens = vec![vec![2, 1, 0, 0, 0]; TOKENS_MAX + 1],
        |m| m.tokens[0] = vec![2, 1, 0, 0],
        |m| m.tokens[0] = vec![3, 1, 0, 0, 0],
        |m| m.generation = 0,
        |m| m.attributes = (0..=ATTRIBUTES_MAX).map(|i| (i.to_string(), "".into())).collect(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut bad = good.clone();
        change(&mut bad);
        assert_eq!(bad.read(), None, "change {number}");
    }
    assert!(good.read().is_some());
}

#[test]
fn messages_beyond_the_limits_are_refused() {
    let mut message =
        Gossip { step: Step::Syn.into(), host: "h".into(), port: 1, ..Gossip::default() };
    assert!(Gossip::read(&message.encode_to_vec()).is_some());
    message.wants = vec![1; ENTRIES_MAX + 1];
    assert!(Gossip::read(&message.encode_to_vec()).is_none());
    message.wants.clear();
    message.host.clear();
    assert!(Gossip::read(&message.encode_to_vec()).is_none());
    assert!(Gossip::read(&vec![0; MESSAGE_BYTES_MAX + 1]).is_none());
    assert!(Gossip::read(b"\xff").is_none());
}

#[test]
fn ages_travel_in_coarse_units() {
    let beat = |age_ms| Heartbeat { beat: 1, age_ms };
    let trip = |b: Heartbeat| Heartbeat::from_wire(b.beat, b.age_units());
    assert_eq!(trip(beat(Some(569))), beat(Some(560)));
    assert_eq!(trip(beat(None)), beat(None));
    assert_eq!(trip(beat(Some(u64::MAX))), beat(None));
    assert_eq!(Heartbeat::from_wire(0, 5).age_ms, None, "no heartbeat, no age");
}
