//! The FIFO of tickets: order, tombstones, ids that do not match, replies in pieces.

use super::*;
use crate::proto::dnode::{DATA_PLAIN, put_header};

const PEER: Target = Target::Peer(PeerId(7));

fn upstream(target: Target) -> Upstream {
    Upstream::new(target, true, Protocol::Redis, ReplyLimits::default())
}

fn ticket(slot: u32, deadline_ms: u64) -> Ticket {
    Ticket { deadline_ms, ..Ticket::of(slot, 0) }
}

fn push(up: &mut Upstream, slots: &[u32], deadline_ms: u64) {
    for slot in slots {
        up.push(ticket(*slot, deadline_ms), 0);
    }
}

/// Pops with an id and gives the slots: those lost, and the one that matched.
fn pop(up: &mut Upstream, id: Option<u64>) -> (Vec<u32>, Option<u32>) {
    let mut lost = Vec::new();
    let found = up.pop(id, 0, |t| lost.push(t.slot)).map(|t| t.slot);
    (lost, found)
}

fn frame(id: u64, kind: u8, body: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_header(&mut out, id, kind, 0, 1, true, DATA_PLAIN, body.len() as u64);
    out.extend_from_slice(body.as_bytes());
    out
}

const RES: u8 = 5;

#[test]
fn replies_belong_to_tickets_in_the_order_of_requests() {
    let mut up = upstream(PEER);
    assert_eq!([1, 2, 3].map(|slot| up.push(ticket(slot, 0), 0)), [1, 2, 3]);
    assert_eq!(pop(&mut up, Some(1)), (vec![], Some(1)));
    assert_eq!(pop(&mut up, Some(2)), (vec![], Some(2)));
    assert_eq!(up.push(ticket(4, 0), 0), 4);
    assert_eq!(pop(&mut up, Some(3)), (vec![], Some(3)));
    assert_eq!(pop(&mut up, Some(4)), (vec![], Some(4)));
    assert_eq!(up.in_flight(), 0);
}

#[test]
fn a_store_has_no_ids() {
    let mut up = upstream(Target::Store);
    push(&mut up, &[1, 2], 0);
    assert_eq!(pop(&mut up, None), (vec![], Some(1)));
    assert_eq!(pop(&mut up, None), (vec![], Some(2)));
    assert_eq!(pop(&mut up, None), (vec![], None));
}

#[test]
fn an_older_id_belongs_to_nobody() {
    let mut up = upstream(PEER);
    push(&mut up, &[1, 2], 0);
    pop(&mut up, Some(1));
    assert_eq!(pop(&mut up, Some(1)), (vec![], None));
    assert_eq!(pop(&mut up, Some(0)), (vec![], None));
    assert_eq!(pop(&mut up, Some(2)), (vec![], Some(2)));
}

#[test]
fn an_id_that_was_never_sent_belongs_to_nobody() {
    let mut up = upstream(PEER);
    push(&mut up, &[1, 2], 0);
    assert_eq!(pop(&mut up, Some(3)), (vec![], None));
    assert_eq!(pop(&mut up, Some(u64::MAX)), (vec![], None));
    assert_eq!(up.in_flight(), 2);
    assert_eq!(pop(&mut upstream(PEER), Some(1)), (vec![], None));
}

#[test]
fn a_later_id_loses_the_tickets_before_it() {
    let mut up = upstream(PEER);
    push(&mut up, &[1, 2, 3, 4], 0);
    assert_eq!(pop(&mut up, Some(3)), (vec![1, 2], Some(3)));
    assert_eq!(pop(&mut up, Some(4)), (vec![], Some(4)));
}

#[test]
fn an_expired_ticket_keeps_its_place() {
    let mut up = upstream(PEER);
    up.push(ticket(1, 10), 0);
    up.push(ticket(NOBODY, 10), 0);
    up.push(ticket(3, 30), 0);
    assert_eq!(up.next_deadline_ms(), Some(10));
    assert!(up.expire(9).is_none());
    assert_eq!(up.expire(10).map(|t| t.slot), Some(1));
    assert_eq!(up.expire(10).map(|t| t.slot), Some(NOBODY));
    assert!(up.expire(10).is_none());
    assert_eq!((up.in_flight(), up.next_deadline_ms()), (3, Some(30)));
    // The late replies are told from those that nobody ever wanted; the third is on time.
    assert_eq!(pop(&mut up, Some(1)), (vec![], Some(TOO_LATE)));
    assert_eq!(pop(&mut up, Some(2)), (vec![], Some(NOBODY)));
    assert_eq!(up.next_deadline_ms(), Some(30));
    assert_eq!(pop(&mut up, Some(3)), (vec![], Some(3)));
    assert_eq!(up.next_deadline_ms(), None);
}

#[test]
fn tickets_expire_one_by_one_among_pops_and_pushes() {
    let mut up = upstream(PEER);
    for slot in 0..50 {
        up.push(ticket(slot, u64::from(slot)), 0);
    }
    let mut next = 0;
    for now in 0..50u64 {
        assert_eq!(up.expire(now).map(|t| t.slot), Some(now as u32));
        assert!(up.expire(now).is_none());
        if now % 2 == 1 {
            assert_eq!(pop(&mut up, None).1, Some(TOO_LATE));
            next += 1;
        }
    }
    assert_eq!(up.in_flight(), 50 - next);
}

#[test]
fn replies_before_the_one_that_counts_are_skipped() {
    let mut up = upstream(Target::Store);
    up.push(Ticket { skip: 2, ..ticket(1, 0) }, 0);
    up.push(ticket(2, 0), 0);
    for want in [None, None, Some(1), Some(2)] {
        assert_eq!(pop(&mut up, None).1, want);
    }
}

#[test]
fn a_lost_connection_gives_up_every_ticket_and_counts_ids_anew() {
    let mut up = upstream(PEER);
    push(&mut up, &[1, 2, 3], 5);
    up.expire(9);
    let slots: Vec<u32> = up.drain().map(|(t, _)| t.slot).collect();
    assert_eq!(slots, [TOO_LATE, 2, 3]);
    up.reset();
    assert_eq!((up.in_flight(), up.next_deadline_ms()), (0, None));
    assert_eq!(up.push(ticket(9, 0), 0), 1);
}

#[test]
fn the_stall_rule_counts_from_the_last_sign_of_life() {
    let mut up = upstream(PEER);
    up.push(ticket(1, 0), 100);
    up.push(ticket(2, 0), 200);
    assert_eq!(up.waiting_since_ms, 100);
    up.pop(Some(1), 300, |_| {});
    assert_eq!(up.waiting_since_ms, 300);
}

#[test]
fn a_store_that_speaks_unasked_is_not_listened_to() {
    let mut up = upstream(Target::Store);
    assert!(matches!(up.next_reply(&mut []), Ok(None)));
    assert_eq!(up.next_reply(&mut b"+OK\r\n".to_vec()).unwrap_err(), UpstreamError::Surplus);
    up.push(ticket(1, 0), 0);
    assert_eq!(
        up.next_reply(&mut b"nonsense\r\n".to_vec()).unwrap_err(),
        UpstreamError::Unreadable
    );
}

#[test]
fn a_framed_reply_is_found_at_every_split() {
    let mut bytes = frame(1, RES, "$3\r\nabc\r\n");
    for split in 0..bytes.len() {
        let mut up = upstream(PEER);
        up.push(ticket(1, 0), 0);
        assert!(matches!(up.next_reply(&mut bytes[..split]), Ok(None)), "{split}");
        let found = up.next_reply(&mut bytes).unwrap().expect("a whole reply");
        assert_eq!((found.id, found.body), (Some(1), 9));
        assert_eq!(&bytes[found.header..], b"$3\r\nabc\r\n");
    }
}

#[test]
fn frames_that_are_no_answer_end_the_link() {
    for mut bytes in [frame(1, 3, "+OK\r\n"), frame(1, 7, "+OK\r\n"), frame(1, RES, "?\r\n")] {
        assert!(upstream(PEER).next_reply(&mut bytes).is_err());
    }
}

#[test]
fn noise_before_a_frame_is_dropped_as_it_comes() {
    let mut up = upstream(PEER);
    up.push(ticket(1, 0), 0);
    let mut buf = Vec::new();
    for _ in 0..100 {
        buf.extend_from_slice(&[b'x'; 100]);
        assert!(matches!(up.next_reply(&mut buf), Ok(None)));
        buf.drain(..up.take_junk());
        assert!(buf.len() < 128, "{} bytes are kept", buf.len());
    }
    buf.extend_from_slice(&frame(1, RES, ":1\r\n"));
    let found = up.next_reply(&mut buf).unwrap().expect("a whole reply");
    assert_eq!(&buf[found.header..], b":1\r\n");
    assert_eq!(up.take_junk(), 0);
}

#[test]
fn what_was_not_written_is_told_from_what_was_in_part() {
    let mut up = Upstream::new(Target::Store, true, Protocol::Redis, ReplyLimits::default());
    let big = vec![b'x'; crate::proto::outbuf::SHARE_MIN];
    let frames: [&[u8]; 4] = [b"first", b"second", &big, b"last"];
    for (slot, frame) in (1..).zip(frames) {
        up.push(ticket(slot, 0), 0);
        up.out.put_shared(frame.to_vec().into());
    }
    up.on_written(6);
    let seen: Vec<_> = up.drain().map(|(ticket, frame)| (ticket.slot, frame)).collect();
    let want = [None, None, Some(big.clone()), Some(b"last".to_vec())];
    assert_eq!(seen, (1..).zip(want).collect::<Vec<_>>());
    // A frame that begins where the written bytes end was not begun.
    up.reset();
    up.push(ticket(1, 0), 0);
    up.out.put(b"first");
    up.on_written(5);
    up.push(ticket(2, 0), 0);
    up.out.put(b"second");
    let frames: Vec<_> = up.drain().map(|(_, frame)| frame).collect();
    assert_eq!(frames, [None, Some(b"second".to_vec())]);
}

#[test]
fn a_reply_that_is_nested_too_deep_ends_the_connection() {
    let limits = ReplyLimits { depth_max: 2, ..ReplyLimits::default() };
    let mut up = Upstream::new(Target::Store, true, Protocol::Redis, limits);
    up.push(ticket(1, 0), 0);
    let found = up.next_reply(&mut b"*1\r\n*1\r\n:1\r\n".to_vec()).unwrap();
    assert_eq!(found.map(|f| f.body), Some(12));
    let deeper = up.next_reply(&mut b"*1\r\n*1\r\n*1\r\n:1\r\n".to_vec());
    assert_eq!(deeper.unwrap_err(), UpstreamError::Unreadable);
}
