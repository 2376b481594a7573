//! Every state of `spec/consistency.md` section 3, for one to five racks and several
//! datacenters.

mod elements;

use super::*;
use Compare::{Exact, First, Unordered, UnorderedPairs};
use Strictness::{Lenient, Safe};

const STORAGE: &str = "-ERR Storage: Datastore refused connection (n3, r3, closed)\r\n";

/// A group of which every replica is asked.
fn whole(replicas: u16) -> Group {
    Group { replicas, asked: replicas, failure: None }
}

/// A group that lacks `missing` replicas, for want of a connection.
fn short(replicas: u16, missing: u16) -> Group {
    let failure = Failure::new(FailureKind::PeerNotConnected, Cause::NotConnected);
    Group { replicas, asked: replicas - missing, failure: Some(failure) }
}

fn vote(groups: &[Group], compare: Compare, strictness: Strictness) -> Gather {
    let mut gather = Gather::default();
    gather.begin(groups, compare, strictness, false, Some(0));
    gather
}

/// What one replica says, as a word: `-` did not answer, anything else is sent as a reply line
/// (or as it is when it is framed already).
fn said(word: &str) -> Said<'_> {
    match word {
        "-" => Said::Failed(Failure::new(FailureKind::PeerRefused, Cause::Closed)),
        reply => Said::Reply(reply.as_bytes()),
    }
}

/// A replica without stamps.
fn rack(own: bool) -> Voter {
    Voter { own, ..Voter::default() }
}

/// Hands in the answers of the local group, the own rack's first; the verdict as a word, and how
/// many answers it took.
fn decide(gather: &mut Gather, words: &[&str]) -> (String, usize) {
    for (i, word) in words.iter().enumerate() {
        if let Some(verdict) = gather.push(0, rack(i == 0), said(word)) {
            return (name(gather, verdict), i + 1);
        }
    }
    ("waiting".to_owned(), words.len())
}

fn name(gather: &Gather, verdict: Verdict) -> String {
    match verdict {
        Verdict::Reply(i) | Verdict::Newest(i) => {
            String::from_utf8_lossy(gather.answer(i).as_slice()).into_owned()
        }
        Verdict::PerElement => "per element".to_owned(),
        Verdict::Failed(f) => format!("{:?} {:?}", f.kind, f.cause),
    }
}

#[test]
fn the_verdict_of_every_state() {
    let disagree = "NoQuorum Disagree";
    let refused = "PeerRefused Closed";
    let wrong_type = "-WRONGTYPE a key of another type\r\n";
    // Replicas, what they say in order of arrival, lenient verdict, safe verdict, answers needed.
    let cases: &[(u16, &[&str], &str, &str, usize)] = &[
        (1, &["x"], "x", "x", 1),
        (1, &["-"], refused, refused, 1),
        (2, &["x", "x"], "x", "x", 2),
        (2, &["x", "-"], refused, refused, 2),
        (2, &["-", "x"], refused, refused, 1),
        (3, &["x", "x", "y"], "x", "x", 2),
        (3, &["x", "y", "x"], "x", "x", 3),
        (3, &["y", "x", "x"], "x", "x", 3),
        (3, &["x", "-", "x"], "x", "x", 3),
        (3, &["-", "-", "x"], refused, refused, 2),
        (3, &["x", "-", "-"], refused, refused, 3),
        (4, &["x", "x", "x", "y"], "x", "x", 3),
        (4, &["x", "x", "-", "-"], refused, refused, 4),
        (5, &["x", "x", "x", "y", "y"], "x", "x", 3),
        (5, &["x", "y", "x", "y", "x"], "x", "x", 5),
        (5, &["x", "-", "x", "-", "x"], "x", "x", 5),
        (5, &["-", "x", "-", "x", "-"], refused, refused, 5),
        // A datastore's own error is an answer like any other.
        (3, &[wrong_type, "x", wrong_type], wrong_type, wrong_type, 3),
        // The loser's text differs by strictness from here on.
        (2, &["x", "y"], "x", disagree, 2),
        (3, &["x", "y", "z"], "x", disagree, 3),
        (3, &["x", "y", "-"], "x", disagree, 3),
        (4, &["x", "x", "y", "y"], "x", disagree, 4),
        (4, &["y", "x", "x", "z"], "x", disagree, 4),
        (5, &["x", "x", "y", "y", "z"], "x", disagree, 5),
        (5, &["z", "y", "y", "x", "-"], "y", disagree, 5),
    ];
    for (replicas, words, lenient, safe, answers) in cases {
        for (strictness, want) in [(Lenient, lenient), (Safe, safe)] {
            let mut gather = vote(&[whole(*replicas)], Exact, strictness);
            let (found, taken) = decide(&mut gather, words);
            assert_eq!(&found, want, "{strictness:?} {words:?}");
            // A safe vote may know sooner that no majority is possible.
            let early = strictness == Safe && found == disagree;
            assert!(taken == *answers || (early && taken < *answers), "{words:?} took {taken}");
        }
    }
}

#[test]
fn a_safe_vote_fails_as_soon_as_no_majority_is_possible() {
    let mut gather = vote(&[whole(5)], Exact, Safe);
    let (found, taken) = decide(&mut gather, &["a", "b", "c", "d", "a"]);
    assert_eq!((found.as_str(), taken), ("NoQuorum Disagree", 4));
}

#[test]
fn a_lenient_vote_waits_for_everybody_before_it_guesses() {
    let mut gather = vote(&[whole(3)], Exact, Lenient);
    assert_eq!(decide(&mut gather, &["a", "b"]).0, "waiting");
    assert_eq!(decide(&mut gather, &["b"]).0, "b");
}

#[test]
fn replicas_that_could_not_be_asked_count_as_errors_at_once() {
    let mut gather = vote(&[short(3, 1)], Exact, Safe);
    assert_eq!(decide(&mut gather, &["x", "x"]), ("x".to_owned(), 2));
    let mut gather = vote(&[short(3, 1)], Exact, Safe);
    assert_eq!(decide(&mut gather, &["x", "y"]).0, "NoQuorum Disagree");
    let mut gather = vote(&[short(3, 1)], Exact, Lenient);
    assert_eq!(decide(&mut gather, &["x", "y"]).0, "x");
    // The first cause is the one that is told.
    let mut gather = vote(&[short(3, 1)], Exact, Lenient);
    assert_eq!(decide(&mut gather, &["-"]).0, "PeerNotConnected NotConnected");
}

#[test]
fn an_error_line_made_by_a_node_is_no_answer_to_agree_on() {
    for strictness in [Lenient, Safe] {
        let mut gather = vote(&[whole(3)], Exact, strictness);
        let (found, taken) = decide(&mut gather, &[STORAGE, STORAGE]);
        assert_eq!((found.as_str(), taken), ("StoreRefused Reported", 2));
        let mut gather = vote(&[whole(3)], Exact, strictness);
        assert_eq!(decide(&mut gather, &[STORAGE, "x", "x"]).0, "x");
    }
}

#[test]
fn large_replies_are_compared_and_given_without_a_copy() {
    let large = Bytes::from(vec![b'x'; 1 << 16]);
    let mut gather = vote(&[whole(3)], Exact, Safe);
    assert_eq!(gather.push(0, rack(true), Said::Large(Bytes::from(large.to_vec()))), None);
    let verdict = gather.push(0, rack(false), Said::Large(large.clone()));
    assert_eq!(verdict, Some(Verdict::Reply(0)));
    assert_eq!(gather.answer(0).shared(), Some(&large));
    assert_eq!(gather.answer(0).as_slice().len(), large.len());
}

#[test]
fn sets_agree_in_any_order_and_pairs_stay_together() {
    let set = |items: &[&str]| {
        let mut out = format!("*{}\r\n", items.len());
        items.iter().for_each(|i| out += &format!("${}\r\n{i}\r\n", i.len()));
        out
    };
    let abc = set(&["a", "b", "c", "d"]);
    let mixed = set(&["d", "c", "a", "b"]);
    let swapped = set(&["a", "d", "c", "b"]);
    let cases = [
        (Unordered, &mixed, true),
        (Unordered, &swapped, true),
        (Exact, &mixed, false),
        // a b c d as pairs: (a, b) and (c, d).
        (UnorderedPairs, &set(&["c", "d", "a", "b"]), true),
        (UnorderedPairs, &swapped, false),
        (Unordered, &set(&["a", "b", "c"]), false),
        // The same sum of lengths, other elements.
        (Unordered, &set(&["a", "b", "c", "x"]), false),
        (Unordered, &set(&["a", "a", "b", "b"]), false),
        (Unordered, &"$-1\r\n".to_owned(), false),
    ];
    for (compare, other, agree) in cases {
        let mut gather = vote(&[whole(2)], compare, Safe);
        let found = decide(&mut gather, &[&abc, other]).0;
        assert_eq!(found == abc, agree, "{compare:?} {other:?}");
    }
    for compare in [Unordered, UnorderedPairs] {
        let mut gather = vote(&[whole(2)], compare, Safe);
        assert_eq!(decide(&mut gather, &["$-1\r\n", "$-1\r\n"]).0, "$-1\r\n");
    }
}

#[test]
fn replies_that_differ_by_nature_are_the_own_racks() {
    // The own rack's comes last and is waited for.
    let mut gather = vote(&[whole(3)], First, Safe);
    assert_eq!(gather.push(0, rack(false), said(":8")), None);
    assert_eq!(gather.push(0, rack(false), said(":9")), None);
    let verdict = gather.push(0, rack(true), said(":7")).expect("enough");
    assert_eq!(name(&gather, verdict), ":7");
    // It comes first: enough others must be alive too.
    let mut gather = vote(&[whole(3)], First, Safe);
    assert_eq!(decide(&mut gather, &[":7", ":8"]), (":7".to_owned(), 2));
    // It cannot answer: the first other one.
    let mut gather = vote(&[whole(3)], First, Safe);
    assert_eq!(decide(&mut gather, &["-", ":8", ":9"]), (":8".to_owned(), 3));
    // Errors still count.
    let mut gather = vote(&[whole(3)], First, Lenient);
    assert_eq!(decide(&mut gather, &[":7", "-", "-"]).0, "PeerRefused Closed");
    // It was never asked.
    let mut gather = Gather::default();
    gather.begin(&[short(3, 1)], First, Safe, false, None);
    assert_eq!(gather.push(0, rack(false), said(":8")), None);
    let verdict = gather.push(0, rack(false), said(":9")).expect("enough");
    assert_eq!(name(&gather, verdict), ":8");
}

#[test]
fn every_datacenter_must_be_done_and_the_local_answer_is_given() {
    let mut gather = vote(&[whole(1), whole(3)], Exact, Safe);
    assert_eq!(gather.push(0, rack(true), said("x")), None);
    assert_eq!(gather.push(1, rack(false), said("x")), None);
    let verdict = gather.push(1, rack(false), said("x")).expect("both are done");
    assert_eq!(name(&gather, verdict), "x");
    // A remote datacenter that agrees on something else does not change the answer.
    let mut gather = vote(&[whole(1), whole(1)], Exact, Safe);
    assert_eq!(gather.push(1, rack(false), said("y")), None);
    let verdict = gather.push(0, rack(true), said("x")).expect("both are done");
    assert_eq!(name(&gather, verdict), "x");
}

#[test]
fn one_datacenters_error_is_everybodys() {
    let mut gather = vote(&[whole(2), whole(2)], Exact, Safe);
    for dc in [0, 0] {
        assert_eq!(gather.push(dc, rack(false), said("x")), None);
    }
    assert_eq!(gather.push(1, rack(false), said("x")), None);
    let verdict = gather.push(1, rack(false), said("y")).expect("both are done");
    assert_eq!(name(&gather, verdict), "NoQuorum Disagree");
    // A failure is told only when the others are done too.
    let mut gather = vote(&[whole(1), whole(2)], Exact, Safe);
    assert_eq!(gather.push(1, rack(false), said("-")), None);
    let verdict = gather.push(0, rack(true), said("x")).expect("both are done");
    assert_eq!(name(&gather, verdict), "PeerRefused Closed");
}

#[test]
fn a_vote_leaves_nothing_behind_for_the_next() {
    let mut gather = vote(&[whole(3), whole(2)], Exact, Lenient);
    decide(&mut gather, &["old", "old", "older"]);
    gather.begin(&[whole(3)], Exact, Safe, false, Some(0));
    assert_eq!(decide(&mut gather, &["new", "newer", "new"]).0, "new");
}

#[test]
fn a_null_that_passed_through_a_script_of_a_c_peer_is_still_a_null() {
    let mut gather = vote(&[whole(2)], Exact, Safe);
    assert_eq!(decide(&mut gather, &["*-1\r\n", "$-1\r\n"]), ("*-1\r\n".to_owned(), 2));
}

/// What one replica says, with its stamp; `?` is a store that may lack data.
fn stamped(words: &str) -> (Voter, &str) {
    let (said, rest) = words.split_once('@').expect("a stamp");
    let joining = rest.ends_with('?');
    let stamp = rest.trim_end_matches('?').parse().ok().map(Stamp::new);
    (Voter { joining, stamp, own: false }, said)
}

#[test]
fn the_newest_of_differing_answers_is_given() {
    let table = [
        // Replicas, what they say in order of arrival, lenient verdict, safe verdict.
        (3, "old@10 new@20 -@", "new", "disagree"),
        (3, "new@20 old@10 -@", "new", "disagree"),
        (3, "nil@0 v@10 -@", "v", "disagree"),
        (3, "v@10 nil@20 -@", "nil", "disagree"),
        (3, "a@10 b@20 c@30", "c", "disagree"),
        // A majority is a majority.
        (3, "v@10 v@10 w@20", "v", "v"),
        (3, "a@10 b@20 b@20", "b", "b"),
        // Without all stamps the first arrived one, as ever.
        (3, "old@10 new@ -@", "old", "disagree"),
        (3, "old@ new@20 -@", "old", "disagree"),
        // A store that lacks data does not vote for absence, and can have a value all the same.
        (3, "nil@0? nil@0 v@10", "v", "disagree"),
        (3, "nil@0? nil@0 nil@0", "nil", "nil"),
        (3, "nil@0? nil@0 -@", "nil", "disagree"),
        (3, "nil@0? v@10 v@10", "v", "v"),
        (3, "v@10? v@10 w@5", "v", "v"),
        (3, "nil@7? nil@7 v@5", "nil", "nil"),
        (3, "nil@0? nil@0? nil@0?", "nil", "nil"),
        (3, "1@30? 101@30 -@", "101", "disagree"),
        (2, "old@10 new@20", "new", "disagree"),
        (5, "a@10 b@40 c@20 -@ -@", "b", "disagree"),
    ];
    for (replicas, answers, lenient, safe) in table {
        for (strictness, expected) in [(Lenient, lenient), (Safe, safe)] {
            let mut gather = vote(&[whole(replicas)], Exact, strictness);
            let mut verdict = None;
            for word in answers.split(' ') {
                let (voter, word) = stamped(word);
                verdict = verdict.or(gather.push(0, voter, said(word)));
            }
            let name = name(&gather, verdict.expect("all have answered"));
            let name = if name == "NoQuorum Disagree" { "disagree" } else { &name };
            assert_eq!(name, expected, "{answers}, {strictness:?}");
        }
    }
}

#[test]
fn equal_stamps_are_settled_alike_whoever_asks() {
    let verdict = |answers: [&str; 3]| {
        let mut gather = vote(&[whole(3)], Exact, Lenient);
        let verdicts = answers.map(|word| {
            let (voter, word) = stamped(word);
            gather.push(0, voter, said(word))
        });
        name(&gather, verdicts.into_iter().flatten().next().expect("decided"))
    };
    let one = verdict(["a@10", "b@10", "c@5"]);
    assert_eq!(verdict(["b@10", "c@5", "a@10"]), one);
    assert_eq!(verdict(["c@5", "a@10", "b@10"]), one);
}

#[test]
fn an_answer_that_differs_by_nature_is_the_newest_ones() {
    let mut gather = vote(&[whole(3)], First, Lenient);
    let answer = |own, stamp| Voter { own, joining: false, stamp: Some(Stamp::new(stamp)) };
    assert_eq!(gather.push(0, answer(false, 20), said(":99")), None);
    let verdict = gather.push(0, answer(true, 10), said(":-1")).expect("a quorum, and the own one");
    assert_eq!(name(&gather, verdict), ":99");
    let mut gather = vote(&[whole(3)], First, Lenient);
    assert_eq!(gather.push(0, answer(false, 20), said(":99")), None);
    let verdict = gather.push(0, answer(true, 20), said(":98")).expect("a quorum, and the own one");
    assert_eq!(name(&gather, verdict), ":98");
}

#[test]
fn values_agree_whatever_their_ids_and_the_preferred_ones_are_awaited() {
    let said_by = |id: u32, value: &str| format!("VALUE k 0 1 {id}\r\n{value}\r\nEND\r\n");
    let (own, two, three) = (said_by(5, "x"), said_by(6, "x"), said_by(7, "x"));
    let mut gather = vote(&[whole(3)], Compare::Values, Safe);
    assert_eq!(gather.push(0, rack(false), said(&two)), None);
    assert_eq!(gather.push(0, rack(false), said(&three)), None, "the ids may still come");
    let verdict = gather.push(0, rack(true), said(&own)).expect("all have answered");
    assert_eq!(name(&gather, verdict), two);
    assert_eq!(gather.own_answer().map(Parked::as_slice), Some(own.as_bytes()));
    // Without the preferred one there are values, and no ids.
    let mut gather = vote(&[whole(3)], Compare::Values, Safe);
    assert_eq!(decide(&mut gather, &["-", &two, &three]), (two.clone(), 3));
    assert!(gather.own_answer().is_none());
    // Other values are others.
    let mut gather = vote(&[whole(3)], Compare::Values, Safe);
    let (four, five) = (said_by(5, "y"), said_by(5, "z"));
    assert_eq!(decide(&mut gather, &[&own, &four, &five]).0, "NoQuorum Disagree");
}

#[test]
fn a_store_that_may_lack_data_acknowledges_a_write_but_does_not_outvote() {
    let verdict = |strictness, writes, words: [&'static str; 3]| {
        let mut gather = vote(&[whole(3)], Exact, strictness);
        if writes {
            gather.on_write();
        }
        let verdict = words.iter().find_map(|word| {
            let (voter, said) = stamped(word);
            gather.push(0, voter, Said::Reply(said.as_bytes()))
        });
        name(&gather, verdict.expect("a verdict"))
    };
    let fresh = ["+OK@0?", "+OK@0?", "+OK@0"];
    assert_eq!(verdict(Safe, true, fresh), "+OK");
    assert_eq!(verdict(Safe, false, fresh), "NoQuorum Disagree");
    assert_eq!(verdict(Lenient, true, [":0@0?", ":0@0?", ":1@7"]), ":1");
}
