use super::*;

fn lifted(shape: Shape, reply: &str) -> String {
    let mut out = Vec::new();
    lift(shape, reply.as_bytes(), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn nulls_are_lifted_at_every_depth() {
    assert_eq!(lifted(Shape::Same, "$-1\r\n"), "_\r\n");
    assert_eq!(lifted(Shape::Map, "*-1\r\n"), "_\r\n");
    assert_eq!(
        lifted(Shape::Same, "*3\r\n*-1\r\n*2\r\n$3\r\n$-1\r\n$-1\r\n:1\r\n"),
        "*3\r\n_\r\n*2\r\n$3\r\n$-1\r\n_\r\n:1\r\n"
    );
}

#[test]
fn each_shape_has_its_form() {
    assert_eq!(
        lifted(Shape::Map, "*4\r\n$1\r\na\r\n:1\r\n+b\r\n$-1\r\n"),
        "%2\r\n$1\r\na\r\n:1\r\n+b\r\n_\r\n"
    );
    assert_eq!(lifted(Shape::Set, "*1\r\n$1\r\na\r\n"), "~1\r\n$1\r\na\r\n");
    assert_eq!(lifted(Shape::Double, "$3\r\n1.5\r\n"), ",1.5\r\n");
    assert_eq!(lifted(Shape::Doubles, "*2\r\n$3\r\ninf\r\n$-1\r\n"), "*2\r\n,inf\r\n_\r\n");
    assert_eq!(
        lifted(Shape::ScorePairs, "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n"),
        "*2\r\n*2\r\n$1\r\na\r\n,1\r\n*2\r\n$1\r\nb\r\n,2\r\n"
    );
    assert_eq!(
        lifted(Shape::KeyScorePairs, "*2\r\n$1\r\nk\r\n*1\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n"),
        "*2\r\n$1\r\nk\r\n*1\r\n*2\r\n$1\r\na\r\n,1\r\n"
    );
    assert_eq!(
        lifted(Shape::Streams, "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*-1\r\n"),
        "%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n_\r\n"
    );
    assert_eq!(
        lifted(Shape::EntryMaps, "*1\r\n*2\r\n*2\r\n+a\r\n+yes\r\n*2\r\n+b\r\n+no\r\n"),
        "*1\r\n%2\r\n+a\r\n+yes\r\n+b\r\n+no\r\n"
    );
    assert_eq!(
        lifted(Shape::Rows, "*2\r\n*3\r\n+a\r\n:1\r\n:2\r\n*3\r\n+b\r\n$-1\r\n$-1\r\n"),
        "%2\r\n+a\r\n*2\r\n:1\r\n:2\r\n+b\r\n*2\r\n_\r\n_\r\n"
    );
    assert_eq!(lifted(Shape::Verbatim, "$2\r\nhi\r\n"), "=6\r\ntxt:hi\r\n");
    assert_eq!(
        lifted(Shape::FunctionList, "*1\r\n*2\r\n+functions\r\n*1\r\n*2\r\n+flags\r\n*0\r\n"),
        "*1\r\n%1\r\n+functions\r\n*1\r\n%1\r\n+flags\r\n~0\r\n"
    );
}

#[test]
fn histograms_are_maps_of_maps() {
    let reply = "*2\r\n+get\r\n*4\r\n+calls\r\n:3\r\n+histogram_usec\r\n*2\r\n:1\r\n:3\r\n";
    let theirs = "%1\r\n+get\r\n%2\r\n+calls\r\n:3\r\n+histogram_usec\r\n%1\r\n:1\r\n:3\r\n";
    assert_eq!(lifted(Shape::Histograms, reply), theirs);
}

#[test]
fn what_does_not_fit_its_shape_is_passed_on() {
    for shape in [Shape::Map, Shape::Set, Shape::Double, Shape::Streams, Shape::Verbatim] {
        assert_eq!(lifted(shape, "-WRONGTYPE x\r\n"), "-WRONGTYPE x\r\n");
        assert_eq!(lifted(shape, ":1\r\n"), ":1\r\n");
    }
    assert_eq!(lifted(Shape::Map, "*1\r\n:1\r\n"), "*1\r\n:1\r\n");
    assert_eq!(lifted(Shape::Pairs, "*1\r\n:1\r\n"), "*1\r\n:1\r\n");
    assert_eq!(lifted(Shape::LastScore, "*0\r\n"), "*0\r\n");
}

#[test]
fn exec_lifts_each_reply_by_its_command() {
    let mut out = Vec::new();
    let reply = b"*2\r\n$1\r\n1\r\n*0\r\n";
    lift_exec(&[Shape::Double, Shape::Map], reply, &mut out);
    assert_eq!(out, b"*2\r\n,1\r\n%0\r\n");
    for (shapes, aborted) in [(&[Shape::Map][..], &b"*-1\r\n"[..]), (&[], b"*-1\r\n")] {
        out.clear();
        lift_exec(shapes, aborted, &mut out);
        assert_eq!(out, b"_\r\n");
    }
    out.clear();
    lift_exec(&[], b"*0\r\n", &mut out);
    assert_eq!(out, b"*0\r\n");
}

#[test]
fn replies_that_need_no_copy_are_known() {
    assert!(is_unchanged(Shape::Map, b"+OK\r\n"));
    assert!(is_unchanged(Shape::Same, b"$1\r\na\r\n"));
    assert!(!is_unchanged(Shape::Same, b"$-1\r\n"));
    assert!(!is_unchanged(Shape::Double, b"$1\r\n1\r\n"));
    assert!(!is_unchanged(Shape::Same, b"*0\r\n"));
}
