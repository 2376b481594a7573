use super::*;
use crate::proto::resp::inline;
use crate::proto::resp::reply::{ReplyLimits, ReplyScanner, elements, parse_int, text};

fn asked(line: &str) -> Vec<u8> {
    let (mut frame, mut spans, mut out) = (Vec::new(), Vec::new(), Vec::new());
    inline::rewrite(line.as_bytes(), &mut frame, &mut spans).unwrap();
    let args = Args::new(&frame, &spans);
    let modules = ModuleCommands::default();
    let spec = table::find(&args, &modules).unwrap();
    assert!(answer(spec, &args, &modules, &mut out), "{line}");
    let whole = ReplyScanner::default().scan(&out, &ReplyLimits::default());
    assert_eq!(whole, Ok(Some(out.len())), "{line}");
    out
}

fn texts(reply: &[u8]) -> Vec<String> {
    let as_text = |e: &[u8]| String::from_utf8_lossy(text(e).unwrap()).into_owned();
    elements(reply).map(as_text).collect()
}

#[test]
fn the_whole_table_is_told() {
    let count = parse_int(&asked("COMMAND COUNT")).unwrap() as usize;
    assert!(count > 250);
    assert_eq!(elements(&asked("COMMAND")).count(), count);
    assert_eq!(elements(&asked("COMMAND INFO")).count(), count);
    assert_eq!(elements(&asked("COMMAND DOCS")).count(), count * 2);
    assert_eq!(elements(&asked("COMMAND LIST")).count(), count);
}

#[test]
fn a_command_is_told_with_its_keys_and_flags() {
    let reply = asked("COMMAND INFO Get object|freq nope config xread");
    let infos: Vec<&[u8]> = elements(&reply).collect();
    let get =
        &b"*10\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n*2\r\n+@read\r\n"[..];
    assert!(infos[0].starts_with(get), "{}", infos[0].escape_ascii());
    assert!(infos[1].starts_with(b"*10\r\n$11\r\nobject|freq\r\n:3\r\n"));
    assert_eq!(infos[2], b"$-1\r\n");
    assert_eq!(elements(elements(infos[3]).last().unwrap()).count(), 4);
    assert_eq!(texts(elements(infos[4]).nth(2).unwrap()), ["readonly", "blocking", "movablekeys"]);
}

#[test]
fn keys_are_told_as_redis_tells_them() {
    assert_eq!(texts(&asked("COMMAND GETKEYS MSET a 1 b 2")), ["a", "b"]);
    assert_eq!(asked("COMMAND GETKEYS EVAL s 0"), b"*0\r\n");
    for (line, error) in [
        ("COMMAND GETKEYS nope a", "-ERR Invalid command specified\r\n"),
        ("COMMAND GETKEYS config nope", "-ERR Invalid command specified\r\n"),
        ("COMMAND GETKEYS PING a", "-ERR The command has no key arguments\r\n"),
        ("COMMAND GETKEYS EXEC a", "-ERR The command has no key arguments\r\n"),
        ("COMMAND GETKEYS LMPOP 0 a LEFT", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS GET a b", "-ERR Invalid number of arguments specified for command\r\n"),
    ] {
        assert_eq!(asked(line), error.as_bytes(), "{line}");
    }
    let flags = asked("COMMAND GETKEYSANDFLAGS GET a");
    assert_eq!(flags, b"*1\r\n*2\r\n$1\r\na\r\n*2\r\n+RO\r\n+access\r\n");
    let words = |line: &str| String::from_utf8(asked(line)).unwrap().replace("\r\n", " ");
    let both = "*2 *2 $1 a *3 +RW +access +delete *2 $1 b *2 +OW +update ";
    assert_eq!(words("COMMAND GETKEYSANDFLAGS RENAME a b"), both);
    assert!(words("COMMAND GETKEYSANDFLAGS SET a b").ends_with("+OW +update "));
    assert!(words("COMMAND GETKEYSANDFLAGS SET a b get").ends_with("+RW +access +update "));
    assert!(words("COMMAND GETKEYSANDFLAGS BITFIELD a GET u8 0").ends_with("+RO +access "));
}

#[test]
fn lists_are_filtered() {
    let sorted = |line| {
        let mut names = texts(&asked(line));
        names.sort();
        names
    };
    let xr = ["xrange", "xread", "xreadgroup", "xrevrange"];
    assert_eq!(sorted("COMMAND LIST FILTERBY PATTERN xr*"), xr);
    assert_eq!(asked("COMMAND LIST FILTERBY MODULE x"), b"*0\r\n");
    assert!(sorted("COMMAND LIST FILTERBY ACLCAT sortedset").contains(&"zadd".to_owned()));
    assert_eq!(asked("COMMAND LIST FILTERBY nope x"), b"-ERR syntax error\r\n");
    assert_eq!(asked("COMMAND LIST x"), b"-ERR syntax error\r\n");
}

#[test]
fn containers_have_help() {
    let lines = texts(&asked("OBJECT HELP"));
    assert!(lines[0].starts_with("OBJECT <subcommand>"));
    assert!(lines.contains(&"ENCODING".to_owned()));
    assert_eq!(lines.last().unwrap(), "    Prints this help.");
}

#[test]
fn other_commands_are_left_to_others() {
    let mut out = Vec::new();
    let spec = table::lookup(b"get").unwrap();
    let args = Args::new(b"", &[]);
    assert!(!answer(spec, &args, &ModuleCommands::default(), &mut out));
    assert!(out.is_empty());
}
