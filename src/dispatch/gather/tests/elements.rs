//! Reads of several keys on which replicas differ.

use super::*;

/// The answer of a read of several keys, one letter each; `.` is a key without a value.
fn array(said: &str) -> String {
    let item = |c: char| match c {
        '.' => "$-1\r\n".to_owned(),
        c => format!("$1\r\n{c}\r\n"),
    };
    format!("*{}\r\n{}", said.len(), said.chars().map(item).collect::<String>())
}

/// The same from memcache, of keys called `a`, `b` and so on; ids count up from `id`.
fn values(said: &str, id: Option<u64>) -> String {
    let item = |(n, c): (usize, char)| {
        let key = char::from(b'a' + n as u8);
        let id = id.map_or_else(String::new, |id| format!(" {}", id + n as u64));
        if c == '.' { String::new() } else { format!("VALUE {key} 0 1{id}\r\n{c}\r\n") }
    };
    said.chars().enumerate().map(item).collect::<String>() + "END\r\n"
}

/// What is settled of keys `a`, `b` and so on, and which ones are not.
fn settled(gather: &Gather, keys: usize) -> (String, Vec<u32>) {
    let keys = &[b"a", b"b", b"c", b"d"].map(|key| &key[..])[..keys];
    let mut out = Vec::new();
    let open = gather.settle_each(keys, &mut out);
    (String::from_utf8(out).unwrap(), open)
}

#[test]
fn each_key_of_a_read_of_several_is_settled_by_itself() {
    // Replicas, what they say, what is settled, which keys are not. `-` did not answer.
    let table: [(u16, &[&str], &str, &[u32]); 8] = [
        (3, &["axx", "xbx", "xxc"], "xxx", &[]),
        (3, &["axx", "bxx", "cxx"], "xx", &[0]),
        (3, &["a.x", "..x", "b.y"], ".x", &[0]),
        (3, &["abx", "bax", "-"], "x", &[0, 1]),
        (3, &["ab", "ba", "cd"], "", &[0, 1]),
        (5, &["xay", "xby", "xcy", "aaa", "-"], "xy", &[1]),
        (5, &["-", "-", "xa", "xb", "xc"], "x", &[1]),
        (2, &["xa", "xb"], "x", &[1]),
    ];
    for (replicas, says, expected, open) in table {
        for strictness in [Lenient, Safe] {
            for form in [array as fn(&str) -> String, |said| values(said, None)] {
                let words: Vec<String> =
                    says.iter().map(|s| if *s == "-" { "-".into() } else { form(s) }).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let mut gather = Gather::default();
                gather.begin(&[whole(replicas)], Exact, strictness, true, Some(0));
                assert_eq!(decide(&mut gather, &words), ("per element".into(), says.len()));
                let keys = says.iter().map(|said| said.len()).max().unwrap();
                let (found, found_open) = settled(&gather, keys);
                assert_eq!(found_open, open, "{says:?}");
                if found.starts_with('*') {
                    assert_eq!(found, array(expected), "{says:?}");
                } else {
                    let kept: String = found.split("\r\n").filter(|line| line.len() == 1).collect();
                    assert_eq!(kept, expected.replace('.', ""), "{says:?}");
                    assert!(found.ends_with("END\r\n"));
                }
            }
        }
    }
}

#[test]
fn ids_do_not_make_values_differ() {
    let mut gather = Gather::default();
    gather.begin(&[whole(3)], Compare::Values, Lenient, true, Some(0));
    let says = [values("xy", Some(1)), values("xz", Some(5)), values("wy", Some(9))];
    let words: Vec<&str> = says.iter().map(String::as_str).collect();
    assert_eq!(decide(&mut gather, &words).0, "per element");
    let right = "VALUE a 0 1 1\r\nx\r\nVALUE b 0 1 2\r\ny\r\nEND\r\n";
    assert_eq!(settled(&gather, 2), (right.to_owned(), vec![]));
}

#[test]
fn a_key_must_be_settled_in_every_datacenter() {
    let (ab, ax) = (array("ab"), array("ax"));
    let mut gather = Gather::default();
    gather.begin(&[whole(1), whole(2)], Exact, Safe, true, Some(0));
    assert_eq!(gather.push(0, rack(true), said(&ab)), None);
    assert_eq!(gather.push(1, rack(false), said(&ab)), None);
    assert_eq!(gather.push(1, rack(false), said(&ax)), Some(Verdict::PerElement));
    assert_eq!(settled(&gather, 2), (array("a"), vec![1]));
}

#[test]
fn a_store_that_may_lack_data_settles_no_key_by_lacking_it() {
    let mut gather = Gather::default();
    gather.begin(&[whole(3)], Exact, Lenient, true, Some(0));
    let joining = Voter { joining: true, stamp: Some(Stamp::new(7)), own: true };
    assert_eq!(gather.push(0, joining, said(&array("..x"))), None);
    assert_eq!(gather.push(0, rack(false), said(&array("v.x"))), None);
    let verdict = gather.push(0, rack(false), said(&array(".yx")));
    assert_eq!(verdict, Some(Verdict::PerElement));
    assert_eq!(settled(&gather, 3), (array("x"), vec![0, 1]));
}

#[test]
fn when_it_is_too_late_to_ask_again_the_most_said_is_taken() {
    let late = || Said::Failed(Failure::new(FailureKind::PeerRefused, Cause::TimedOut));
    for (strictness, right) in [(Lenient, "per element"), (Safe, "NoQuorum Disagree")] {
        let mut gather = Gather::default();
        gather.begin(&[whole(3)], Exact, strictness, true, Some(0));
        assert_eq!(gather.push(0, rack(true), said(&array("ax"))), None);
        let early = gather.push(0, rack(false), said(&array("bx")));
        assert_eq!(early, None);
        let verdict = gather.push(0, rack(false), late()).expect("all were heard");
        assert_eq!(name(&gather, verdict), right);
        if strictness == Lenient {
            assert_eq!(settled(&gather, 2), (array("ax"), vec![]));
        }
    }
    // A replica of another datacenter is late: at a safe level there is still no guess.
    let mut gather = Gather::default();
    gather.begin(&[whole(2), whole(3)], Exact, Safe, true, Some(0));
    assert_eq!(gather.push(0, rack(true), said(&array("ax"))), None);
    assert_eq!(gather.push(0, rack(false), said(&array("bx"))), None);
    assert_eq!(gather.push(1, rack(false), late()), None);
    assert_eq!(gather.push(1, rack(false), said(&array("ax"))), None);
    let verdict = gather.push(1, rack(false), said(&array("ax")));
    assert_eq!(verdict, Some(Verdict::PerElement));
    assert_eq!(settled(&gather, 2), (array("x"), vec![0]));
}

#[test]
fn an_error_is_no_answer_of_which_keys_are_settled() {
    let (a, b) = (array("a"), array("b"));
    let loading = "-LOADING data\r\n";
    let mut gather = Gather::default();
    gather.begin(&[whole(5)], Exact, Lenient, true, Some(0));
    assert_eq!(decide(&mut gather, &[loading, &a, &b, &a, loading]).0, loading);
    gather.begin(&[whole(5)], Exact, Lenient, true, Some(0));
    assert_eq!(decide(&mut gather, &[loading, &a, &b, &a, &b]).0, "per element");
    assert_eq!(settled(&gather, 1), (array(""), vec![0]));
}

#[test]
fn of_equal_stamps_a_read_of_one_key_in_an_array_gives_what_a_plain_one_gives() {
    let at_once = |words: [String; 2]| {
        let mut gather = vote(&[short(3, 1)], Exact, Lenient);
        let voter = Voter { stamp: Some(Stamp::new(7)), ..Voter::default() };
        assert_eq!(gather.push(0, voter, said(&words[0])), None);
        let verdict = gather.push(0, voter, said(&words[1])).expect("both were heard");
        matches!(verdict, Verdict::Newest(0))
    };
    // Which of two it is, is a matter of chance for each pair.
    for n in 0..20 {
        let values = [n, n + 100].map(|n: u32| format!("$3\r\n{}\r\n", n + 100));
        let arrays = values.clone().map(|value| format!("*1\r\n{value}"));
        assert_eq!(at_once(values), at_once(arrays), "{n}");
    }
}
