//! Every refusal: status, code, type, message and link, before any backend has seen a write.

use crate::cluster::{Cluster, Shape};
use crate::http::{Answer, Http};
use bytes::Bytes;
use serde_json::json;
use torc::gateway::Key;

const SHAPE: Shape = Shape { groups: 1, members: 2, copies: 1, shards: 16 };
const PATH: &str = "/indexes/movies/documents";
const JSON: &str = "application/json";
const NATIVE: &str = "https://docs.meilisearch.com/errors#";

/// Query, content type and body of a write; status, code and a part of the message.
type DocumentsRow<'a> = (&'a str, &'a str, &'a [u8], u16, &'a str, &'a str);
/// Method, path and body of a request; status, code and a part of the message.
type Row<'a> = (&'a str, &'a str, &'a str, u16, &'a str, &'a str);

/// What comes back must be an error of this status and code that says `part`.
fn check(answer: &Answer, status: u16, code: &str, part: &str, request: &str) {
    let said = answer.json();
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{request}: {said}");
    assert_eq!(answer.header("content-type"), Some(JSON), "{request}");
    let kind = match status {
        401 | 403 => "auth",
        503 | 504 => "system",
        _ => "invalid_request",
    };
    assert_eq!(said["type"], kind, "{request}");
    let link = said["link"].as_str().unwrap();
    let native = !code.starts_with("miroir_");
    assert!(link.ends_with(&format!("#{code}")), "{request}: {link}");
    assert_eq!(link.starts_with(NATIVE), native, "{request}: {link}");
    let message = said["message"].as_str().unwrap();
    assert!(message.contains(part), "{request}: {message}");
    assert!(message.len() < 1_000, "{request}: a message shows no whole body");
    assert_eq!(said.as_object().unwrap().len(), 4, "{request}: {said}");
}

#[tokio::test]
async fn documents_that_cannot_be_taken() {
    let cluster = Cluster::with(SHAPE, |settings| settings.body_bytes_max = 100_000).await;
    let long = format!("[{{\"id\":\"{}\"}}]", "x".repeat(512));
    let large = "x".repeat(100_001);
    let deep = format!("[{{\"id\":1,\"d\":{}{}}}]", "[".repeat(20_000), "]".repeat(20_000));
    let id = "invalid_document_id";
    let key = "miroir_primary_key_required";
    let reserved = "miroir_reserved_field";
    let malformed = "malformed_payload";
    let ndjson = "application/x-ndjson";
    let rows: &[DocumentsRow] = &[
        ("", "text/html", b"[]", 415, "invalid_content_type", "`text/html`"),
        ("?csvDelimiter=;", JSON, b"[]", 415, "invalid_content_type", "csv delimiter"),
        ("?csvDelimiter=ab", "text/csv", b"id\n1", 400, "invalid_document_csv_delimiter", "`ab`"),
        ("?primaryKey=", JSON, b"[{}]", 400, "invalid_index_primary_key", "cannot be"),
        ("?primaryKey=a.b", JSON, b"[{}]", 400, "invalid_index_primary_key", "`a.b`"),
        ("?nosuch=1", JSON, b"[{}]", 400, "bad_request", "`nosuch`"),
        ("", JSON, b"", 400, "missing_payload", "json"),
        ("", ndjson, b"", 400, "missing_payload", "ndjson"),
        ("", "text/csv", b"", 400, "missing_payload", "csv"),
        ("", JSON, b"{", 400, malformed, "json"),
        ("", JSON, b"[{\"id\":1}", 400, malformed, "json"),
        ("", JSON, b"[5]", 400, malformed, "document 0 is no object: 5"),
        ("", JSON, b"[{\"id\":\"\\ud800\"}]", 400, malformed, "surrogate"),
        ("", JSON, deep.as_bytes(), 400, malformed, "nested deeper"),
        ("", JSON, b"[{\"id\":\"\xff\"}]", 400, malformed, "utf-8"),
        ("", ndjson, b"{\"id\":1}\n{\"id\":", 400, malformed, "ndjson"),
        ("", ndjson, b"{\"id\":\"\xc3\x28\"}", 400, malformed, "utf-8"),
        ("", "text/csv", b"id,n:number\n1,x\n", 400, malformed, "`x` in column `n`"),
        ("", "text/csv", b"id,b:boolean\n1,yes\n", 400, malformed, "`yes` in column `b`"),
        ("", "text/csv", b"id\n\xff\n", 400, malformed, "utf-8"),
        ("", JSON, large.as_bytes(), 413, "payload_too_large", "size limit"),
        ("", JSON, b"[{\"name\":1}]", 400, key, "`id`, `pk`, `key`, `_id`"),
        ("", JSON, b"[]", 400, key, "primaryKey"),
        ("", JSON, b"[{\"id\":1},{\"x\":1}]", 400, key, "document 1"),
        ("", JSON, b"[{\"id\":1},{\"id\":null}]", 400, key, "document 1"),
        ("", JSON, b"[{\"id\":1},{\"id\":2,\"_miroir_shard\":1}]", 400, reserved, "_miroir_shard"),
        ("", JSON, b"[{\"_miroir\\u005fshard\":1,\"id\":1}]", 400, reserved, "_miroir_shard"),
        ("", JSON, b"[{\"\\u005f\\u006diroir_shard\":1,\"id\":2}]", 400, reserved, "document 0"),
        ("", JSON, b"[{\"id\":1.0}]", 400, id, "`1.0`"),
        ("", JSON, b"[{\"id\":1e3}]", 400, id, "`1e3`"),
        ("", JSON, b"[{\"id\":-0}]", 400, id, "`-0`"),
        ("", JSON, b"[{\"id\":18446744073709551616}]", 400, id, "18446744073709551616"),
        ("", JSON, b"[{\"id\":true}]", 400, id, "`true`"),
        ("", JSON, b"[{\"id\":[1]}]", 400, id, "`[1]`"),
        ("", JSON, b"[{\"id\":{}}]", 400, id, "`{}`"),
        ("", JSON, b"[{\"id\":\"\"}]", 400, id, "document 0"),
        ("", JSON, b"[{\"id\":\"a b\"}]", 400, id, "`\"a b\"`"),
        ("", JSON, long.as_bytes(), 400, id, "511 bytes"),
    ];
    for (query, kind, body, status, code, part) in rows {
        for method in ["POST", "PUT"] {
            let http = cluster.http.with("content-type", kind);
            let body = Bytes::copy_from_slice(body);
            let answer = http.send(method, &format!("{PATH}{query}"), body.clone()).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            check(&answer, *status, code, part, &format!("{method} {query} {kind} {shown}"));
        }
    }
    let none = cluster.http.send("POST", PATH, "[]").await;
    check(&none, 415, "missing_content_type", "Content-Type", "no content type");
    let json = cluster.http.with("content-type", JSON);
    for (path, code, part) in [
        ("/indexes/a%20b/documents", "invalid_index_uid", "`a b`"),
        ("/indexes/%ff/documents", "bad_request", "UTF-8"),
        (&format!("/indexes/{}/documents", "u".repeat(401)), "invalid_index_uid", "uuu"),
    ] {
        check(&json.send("POST", path, "[{\"id\":1}]").await, 400, code, part, path);
    }
    assert_eq!(cluster.writes(), [0, 0], "no backend has seen a write");
    assert_eq!(cluster.gateway.in_flight_bytes(), 0);
}

#[tokio::test]
async fn other_requests_that_cannot_be_answered() {
    let cluster = Cluster::start(SHAPE).await;
    cluster.add(&json!([{"id": 1}])).await;
    let aliases = json!({"name": "all", "targets": ["movies", "books"]});
    assert_eq!(cluster.post("/_miroir/aliases", &aliases).await.status, 200);
    cluster.forget_requests();
    let deep = "[".repeat(50_000);
    let deep_object = format!("{{\"filter\":{deep}");
    let multi = "miroir_multi_alias_not_writable";
    let rows: &[Row] = &[
        ("DELETE", PATH, "{}", 400, "bad_request", "either `ids` or"),
        ("DELETE", PATH, "{\"ids\":[1],\"filter\":\"id = 1\"}", 400, "bad_request", "either `ids`"),
        ("DELETE", PATH, "5", 400, "bad_request", "array of ids"),
        ("DELETE", PATH, "{", 400, "malformed_payload", "json"),
        ("DELETE", PATH, &deep, 400, "malformed_payload", "json"),
        ("POST", "documents/delete-batch", "", 400, "missing_payload", "json"),
        ("POST", "documents/delete-batch", "{\"ids\":[]}", 400, "bad_request", "sequence"),
        ("POST", "documents/delete-batch", "[1.5]", 400, "bad_request", "`1.5`"),
        ("POST", "documents/delete-batch", "[[[1]]]", 400, "bad_request", "`[[1]]`"),
        ("POST", "documents/delete-batch", &deep, 400, "malformed_payload", "json"),
        ("POST", "documents/delete", "{}", 400, "missing_document_filter", "`filter`"),
        ("POST", "documents/delete", "{\"filter\":\"\"}", 400, "invalid_document_filter", "empty"),
        ("POST", "documents/delete", "{\"filter\":5}", 400, "invalid_document_filter", "`5`"),
        ("POST", "documents/delete", &deep_object, 400, "malformed_payload", "recursion"),
        ("POST", "documents/fetch", "[1]", 400, "bad_request", "an object"),
        ("POST", "documents/fetch", "{\"limit\":-1}", 400, "invalid_document_limit", "`.limit`"),
        ("POST", "documents/fetch", &deep_object, 400, "malformed_payload", "recursion"),
        ("GET", "documents?offset=x", "", 400, "invalid_document_offset", "`offset`"),
        ("GET", "documents/zzz", "", 404, "document_not_found", "Document `zzz` not found."),
        ("GET", "documents/%ff", "", 400, "bad_request", "UTF-8"),
        ("GET", "/indexes/nope/documents/1", "", 404, "index_not_found", "Index `nope` not found."),
        ("GET", "/indexes/nope", "", 404, "index_not_found", "Index `nope` not found."),
        ("POST", "/indexes/nope/search", "{}", 404, "index_not_found", "`nope`"),
        ("POST", "search", "{\"limit\":\"x\"}", 400, "invalid_search_limit", "`.limit`"),
        ("POST", "search", "[]", 400, "bad_request", "an object"),
        ("POST", "search", &deep_object, 400, "malformed_payload", "recursion"),
        ("POST", "search", "{\"filter\":\"zz = 1\"}", 400, "invalid_search_filter", "zz"),
        ("GET", "search?limit=x", "", 400, "invalid_search_limit", "`limit`"),
        ("PATCH", "settings", &deep_object, 400, "malformed_payload", "recursion"),
        (
            "POST",
            "documents?primaryKey=sku",
            "[{\"id\":1}]",
            400,
            "index_primary_key_already_exists",
            "`id`",
        ),
        ("POST", "/indexes", "{}", 400, "missing_index_uid", "`uid`"),
        ("POST", "/indexes", "{\"uid\":\"a b\"}", 400, "invalid_index_uid", "`a b`"),
        ("POST", "/indexes/all/documents", "[{\"id\":1}]", 409, multi, "`all`"),
        ("PUT", "/indexes/all/documents", "[{\"id\":1}]", 409, multi, "`all`"),
        ("DELETE", "/indexes/all/documents/1", "", 409, multi, "`all`"),
        ("POST", "/indexes/all/documents/delete-batch", "[1]", 409, multi, "`all`"),
        ("POST", "/indexes/all/documents/delete", "{\"filter\":\"id = 1\"}", 409, multi, "`all`"),
        ("DELETE", "/indexes/all/documents", "", 409, multi, "`all`"),
        ("GET", "/tasks/99999", "", 404, "task_not_found", "Task `99999` not found."),
        ("GET", "/tasks/x", "", 400, "invalid_task_uids", "`x`"),
    ];
    let json = cluster.http.with("content-type", JSON);
    for (method, path, body, status, code, part) in rows {
        let path = match path.strip_prefix('/') {
            Some(_) => (*path).to_owned(),
            None => format!("/indexes/movies/{path}"),
        };
        let answer = json.send(method, &path, (*body).to_owned()).await;
        check(&answer, *status, code, part, &format!("{method} {path} {body:.60}"));
    }
    assert_eq!(cluster.writes(), [0, 0], "no backend has seen a write");
    assert_eq!(cluster.gateway.in_flight_bytes(), 0);
}

#[tokio::test]
async fn the_gateways_own_refusals() {
    let cluster = Cluster::start(SHAPE).await;
    cluster.add(&json!([{"id": 1}])).await;
    let keyed = cluster.http.with("idempotency-key", "k");
    assert_eq!(keyed.json("POST", PATH, &json!([{"id": 1}])).await.status, 202);
    let alias = json!({"name": "films", "target": "movies"});
    assert_eq!(cluster.post("/_miroir/aliases", &alias).await.status, 200);
    cluster.forget_requests();
    let other = json!([{"id": 2}]);
    let (reused, wrong) = ("miroir_idempotency_key_reused", "miroir_invalid_idempotency_key");
    check(&keyed.json("POST", PATH, &other).await, 409, reused, "another request", "reused");
    for key in ["", &"k".repeat(256)] {
        let keyed = cluster.http.with("idempotency-key", key);
        let deleted = keyed.json("DELETE", &format!("{PATH}/1"), &json!(null)).await;
        check(&deleted, 400, wrong, "1 to 255 bytes", key);
    }
    let (aliases, migration) = ("/_miroir/aliases", "/_miroir/migration");
    let (invalid, uid) = ("miroir_invalid_alias", "invalid_index_uid");
    let rows: [(&str, &str, serde_json::Value, u16, &str, &str); 13] = [
        ("POST", aliases, alias, 400, invalid, "the alias `films` exists"),
        ("POST", aliases, json!({"name": "x"}), 400, invalid, "either `target`"),
        ("POST", aliases, json!({"name": "x", "targets": []}), 400, invalid, "1 to 100 targets"),
        ("POST", aliases, json!({"name": "x", "target": "x"}), 400, invalid, "cannot be a target"),
        ("POST", aliases, json!({"name": "x", "target": "films"}), 400, invalid, "`films`"),
        ("POST", aliases, json!({"name": "a b", "target": "movies"}), 400, uid, "`a b`"),
        ("GET", "/_miroir/aliases/x", json!(null), 404, "miroir_alias_not_found", "`x`"),
        (
            "PUT",
            "/_miroir/aliases/x",
            json!({"target": "movies"}),
            404,
            "miroir_alias_not_found",
            "",
        ),
        ("DELETE", "/_miroir/aliases/x", json!(null), 404, "miroir_alias_not_found", "`x`"),
        ("POST", "/indexes", json!({"uid": "films"}), 400, invalid, "is an alias"),
        ("DELETE", migration, json!(null), 409, "miroir_migration_conflict", "no migration"),
        ("POST", "/swap-indexes", json!([]), 501, "miroir_not_supported", "alias"),
        (
            "PATCH",
            "/indexes/movies",
            json!({"primaryKey": "a.b"}),
            400,
            "invalid_index_primary_key",
            "",
        ),
    ];
    for (method, path, body, status, code, part) in rows {
        let answer = cluster.http.json(method, path, &body).await;
        check(&answer, status, code, part, &format!("{method} {path} {body}"));
    }
    assert_eq!(cluster.writes(), [0, 0], "no backend has seen a write");
}

#[tokio::test]
async fn clients_without_the_right_key() {
    let cluster = Cluster::with(SHAPE, |settings| {
        settings.master_key = Key::new("master");
        settings.admin_key = Key::new("admin");
    })
    .await;
    let with = |key: &str| cluster.http.with("authorization", key);
    let refused = async |http: Http, path: &str, status, code, part| {
        for method in ["GET", "POST", "DELETE"] {
            let answer = http.json(method, path, &json!([{"id": 1}])).await;
            check(&answer, status, code, part, &format!("{method} {path}"));
        }
    };
    let (plain, missing) = (cluster.http.clone(), "missing_authorization_header");
    refused(plain.clone(), PATH, 401, missing, "The Authorization header is missing.").await;
    refused(with("Basic x"), PATH, 401, missing, "bearer").await;
    refused(with("Bearer x"), PATH, 403, "invalid_api_key", "invalid").await;
    let aliases = "/_miroir/aliases/x";
    for http in [plain, with("Bearer master"), cluster.http.with("x-admin-key", "x")] {
        let answer = http.send("GET", aliases, "").await;
        check(&answer, 401, "miroir_invalid_auth", "admin key", aliases);
    }
    assert!(cluster.fakes.iter().all(|fake| fake.writes().is_empty()));
}

#[tokio::test]
async fn names_that_stand_twice_or_escaped_are_read_as_a_server_reads_them() {
    let cluster = Cluster::start(SHAPE).await;
    let http = cluster.http.with("content-type", JSON);
    for (body, id) in [
        ("[{\"id\":1,\"id\":2}]", "2"),
        ("[{\"\\u0069d\":7}]", "7"),
        ("[{\"id\":\"\\u0061b\"}]", "ab"),
        ("[{\"id\":\"x\",\"d\":{\"a\":1,\"a\":2},\"d\":3}]", "x"),
        ("[{\"_miroir_custom\":1,\"_miroir_updated_at\":2,\"id\":\"kept\"}]", "kept"),
    ] {
        cluster.succeeded(&http.send("POST", PATH, body).await).await;
        let found = cluster.http.get(&format!("{PATH}/{id}")).await;
        assert_eq!(found.status, 200, "{body}");
        let last: serde_json::Value = serde_json::from_str(&body[1..body.len() - 1]).unwrap();
        assert_eq!(found.json(), last, "the last of two counts");
    }
    assert_eq!(cluster.http.get(&format!("{PATH}/1")).await.code(), "document_not_found");
}
