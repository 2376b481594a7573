//! Request forms, credentials, and everything that is refused before a backend is touched.

use crate::cluster::{Cluster, Shape, documents};
use crate::http::Answer;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::Write;
use torc::gateway::Key;

const TWO: Shape = Shape { groups: 1, members: 2, copies: 1, shards: 16 };
const PATH: &str = "/indexes/movies/documents";

pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

async fn typed(cluster: &Cluster, kind: &str, path: &str, body: impl Into<bytes::Bytes>) -> Answer {
    cluster.http.with("content-type", kind).send("POST", path, body).await
}

#[tokio::test]
async fn json_ndjson_csv_and_gzip_are_taken() {
    let cluster = Cluster::start(TWO).await;
    let sent = [
        typed(&cluster, "application/json; charset=utf-8", PATH, "{\"id\":\"one\"}").await,
        typed(&cluster, "application/x-ndjson", PATH, "{\"id\":\"n1\"}\n\n{\"id\":\"n2\"}").await,
        typed(&cluster, "text/csv", PATH, "id,n:number\nc1,5\n").await,
        typed(&cluster, "text/csv", &format!("{PATH}?csvDelimiter=%3B"), "id;s\nc2;x\n").await,
        cluster
            .http
            .with("content-type", "application/json")
            .with("content-encoding", "GZip")
            .send("POST", PATH, gzip(b"[{\"id\":\"zipped\"}]"))
            .await,
    ];
    for answer in &sent {
        cluster.succeeded(answer).await;
    }
    for (id, document) in [
        ("one", json!({"id": "one"})),
        ("n2", json!({"id": "n2"})),
        ("c1", json!({"id": "c1", "n": 5})),
        ("c2", json!({"id": "c2", "s": "x"})),
        ("zipped", json!({"id": "zipped"})),
    ] {
        assert_eq!(cluster.http.get(&format!("{PATH}/{id}")).await.json(), document);
    }
    let to_backends = cluster.fakes.iter().flat_map(|fake| fake.writes());
    let mut additions = to_backends.filter(|seen| seen.target.contains("primaryKey="));
    assert!(additions.all(|seen| seen.body.starts_with(b"[{")), "all forms go on as JSON arrays");
}

#[tokio::test]
async fn bodies_that_cannot_be_taken_are_refused() {
    let cluster = Cluster::with(TWO, |settings| settings.body_bytes_max = 10_000).await;
    let deep = format!("[{{\"id\":1,\"d\":{}{}}}]", "[".repeat(4_000), "]".repeat(4_000));
    let json = "application/json";
    for (kind, body, status, code) in [
        (json, "", 400, "missing_payload"),
        (json, "{", 400, "malformed_payload"),
        (json, "[5]", 400, "malformed_payload"),
        (json, "5", 400, "malformed_payload"),
        (json, &deep, 400, "malformed_payload"),
        ("text/plain", "[]", 415, "invalid_content_type"),
        ("text/csv", "id,n:number\n1,x\n", 400, "malformed_payload"),
        (json, "[{\"_miroir\\u005fshard\":1,\"id\":1}]", 400, "miroir_reserved_field"),
        (json, "[]", 400, "miroir_primary_key_required"),
    ] {
        let answer = typed(&cluster, kind, PATH, body.to_owned()).await;
        assert_eq!((answer.status, answer.code()), (status, code.to_owned()), "{kind} {body:.40}");
    }
    let answer = typed(&cluster, json, PATH, &b"[{\"id\":\"\xff\"}]"[..]).await;
    assert_eq!(answer.code(), "malformed_payload");
    let none = cluster.http.send("POST", PATH, "[]").await;
    assert_eq!((none.status, none.code()), (415, "missing_content_type".into()));
    for (query, status, code) in [
        ("csvDelimiter=%3B", 415, "invalid_content_type"),
        ("csvDelimiter=%C3%A9", 400, "invalid_document_csv_delimiter"),
        ("zzz=1", 400, "bad_request"),
        ("primaryKey=meta.id", 400, "invalid_index_primary_key"),
        ("skipCreation=maybe", 400, "bad_request"),
    ] {
        let answer = typed(&cluster, json, &format!("{PATH}?{query}"), "[{\"id\":1}]").await;
        assert_eq!((answer.status, answer.code()), (status, code.to_owned()), "{query}");
    }
    let large = format!("[{{\"id\":1,\"x\":\"{}\"}}]", "x".repeat(10_000));
    let answer = typed(&cluster, json, PATH, large.clone()).await;
    assert_eq!((answer.status, answer.code()), (413, "payload_too_large".into()));
    let zipped = cluster.http.with("content-type", json).with("content-encoding", "gzip");
    for (body, code) in [
        (gzip(large.as_bytes()), "payload_too_large"),
        (gzip(&vec![b' '; 50_000_000]), "payload_too_large"),
        (b"not gzip".to_vec(), "malformed_payload"),
    ] {
        assert_eq!(zipped.send("POST", PATH, body).await.code(), code);
    }
    let other = cluster.http.with("content-type", json).with("content-encoding", "br");
    assert_eq!(other.send("POST", PATH, "x").await.code(), "invalid_content_type");
    let uid = cluster.post("/indexes/a%20b/documents", &json!([{"id": 1}])).await;
    assert_eq!((uid.status, uid.code()), (400, "invalid_index_uid".into()));
    for (path, body, code) in [
        ("delete", json!({}), "missing_document_filter"),
        ("delete", json!({"filter": ""}), "invalid_document_filter"),
        ("delete", json!({"filter": 5}), "invalid_document_filter"),
        ("delete", json!("g = b"), "bad_request"),
        ("delete-batch", json!({"ids": [1]}), "bad_request"),
        ("delete-batch", json!([1.5]), "bad_request"),
    ] {
        let answer = cluster.post(&format!("{PATH}/{path}"), &body).await;
        assert_eq!((answer.status, answer.code()), (400, code.to_owned()), "{path} {body}");
    }
    for uid in [json!("p q"), json!(5), json!(null), json!("u".repeat(401))] {
        let create = cluster.post("/indexes", &json!({"uid": uid})).await;
        assert_eq!((create.status, create.code()), (400, "invalid_index_uid".into()), "{uid}");
    }
    assert_eq!(cluster.post("/indexes", &json!({})).await.code(), "missing_index_uid");
    assert_eq!(cluster.writes(), [0, 0], "no backend has seen a write");
    assert_eq!(cluster.gateway.in_flight_bytes(), 0);
}

#[tokio::test]
async fn unknown_paths_and_methods_have_empty_answers() {
    let cluster = Cluster::start(TWO).await;
    let unknown = cluster.http.get("/nosuch").await;
    assert_eq!((unknown.status, unknown.body.len()), (404, 0));
    let wrong = cluster.http.json("PATCH", PATH, &json!([])).await;
    assert_eq!((wrong.status, wrong.body.len()), (405, 0));
}

#[tokio::test]
async fn keys_are_asked_for_and_never_passed_on() {
    let cluster = Cluster::with(TWO, |settings| {
        settings.master_key = Key::new("master");
        settings.admin_key = Key::new("admin");
    })
    .await;
    let none = cluster.http.get("/version").await;
    assert_eq!((none.status, none.code()), (401, "missing_authorization_header".into()));
    let wrong = cluster.http.with("authorization", "Bearer no").get("/version").await;
    assert_eq!((wrong.status, wrong.code()), (403, "invalid_api_key".into()));
    let health = cluster.http.get("/health").await;
    assert_eq!(health.json(), json!({"status": "available"}));
    let client = cluster.http.with("authorization", "Bearer master");
    assert_eq!(client.get("/version").await.json()["pkgVersion"], "1.50.0");
    for denied in [client.get("/_miroir/topology").await, cluster.http.get("/_miroir/ready").await]
    {
        assert_eq!((denied.status, denied.code()), (401, "miroir_invalid_auth".into()));
    }
    let admin = cluster.http.with("x-admin-key", "admin");
    assert_eq!(admin.get("/_miroir/topology").await.json()["shards"], 16);
    let admin = cluster.http.with("authorization", "Bearer admin");
    assert_eq!(admin.get("/_miroir/shards?id=42").await.status, 200);
    client.json("POST", PATH, &json!([{"id": 1}])).await;
    let seen = cluster.fakes.iter().flat_map(|fake| fake.take_log());
    assert!(seen.into_iter().all(|s| s.authorization.as_deref() == Some("Bearer node-key")));
}

#[tokio::test]
async fn the_indexs_own_key_wins_and_another_is_refused() {
    let cluster = Cluster::start(TWO).await;
    let created = cluster.post("/indexes", &json!({"uid": "movies", "primaryKey": "sku"})).await;
    assert_eq!(created.json()["type"], "indexCreation");
    let task = cluster.succeeded(&created).await;
    assert_eq!(task["details"], json!({"primaryKey": "sku"}));
    cluster.add(&json!([{"id": "x", "sku": 7}])).await;
    assert_eq!(cluster.http.get(&format!("{PATH}/7")).await.json()["id"], "x");
    let other = cluster.post(&format!("{PATH}?primaryKey=id"), &json!([{"id": 1}])).await;
    assert_eq!(other.code(), "index_primary_key_already_exists");
    let again = cluster.post("/indexes", &json!({"uid": "movies"})).await;
    let task = cluster.task(&again).await;
    assert_eq!(task["error"]["code"], "index_already_exists");
    let index = cluster.http.get("/indexes/movies").await.json();
    assert_eq!(index["primaryKey"], "sku");
    let all = cluster.http.get("/indexes").await.json();
    assert_eq!(all["results"][0]["uid"], "movies");
    let empty = cluster.post(PATH, &json!([])).await;
    assert_eq!(cluster.succeeded(&empty).await["details"]["receivedDocuments"], 0);
    cluster.succeeded(&cluster.http.send("DELETE", "/indexes/movies", "").await).await;
    assert_eq!(cluster.http.get("/indexes/movies").await.code(), "index_not_found");
    cluster.add(&json!([{"id": 1}])).await;
    assert_eq!(cluster.http.get("/indexes/movies").await.json()["primaryKey"], "id");
}

#[tokio::test]
async fn settings_keep_the_shard_field_filterable_and_hidden() {
    let cluster = Cluster::start(TWO).await;
    cluster.add(&documents(0..4)).await;
    let path = "/indexes/movies/settings";
    let direct = async || {
        let direct = crate::http::Http::new(cluster.fakes[1].url());
        let direct = direct.with("authorization", "Bearer node-key");
        direct.get(&format!("{path}/filterable-attributes")).await.json()
    };
    let write = async |method: &str, path: &str, body: Value| {
        cluster.succeeded(&cluster.http.json(method, path, &body).await).await
    };
    let task = write("PATCH", path, json!({"filterableAttributes": ["g"]})).await;
    assert_eq!(task["type"], "settingsUpdate");
    assert_eq!(direct().await, json!(["g", "_miroir_shard"]));
    assert_eq!(cluster.http.get(path).await.json()["filterableAttributes"], json!(["g"]));
    write("PUT", &format!("{path}/filterable-attributes"), json!(["h"])).await;
    assert_eq!(direct().await, json!(["h", "_miroir_shard"]));
    let shown = cluster.http.get(&format!("{path}/filterable-attributes")).await.json();
    assert_eq!(shown, json!(["h"]));
    write("PATCH", path, json!({"filterableAttributes": null})).await;
    assert_eq!(direct().await, json!(["_miroir_shard"]));
    write("PATCH", path, json!({"stopWords": ["the"]})).await;
    write("DELETE", path, json!(null)).await;
    assert_eq!(direct().await, json!(["_miroir_shard"]));
    assert_eq!(cluster.http.get(path).await.json()["stopWords"], json!([]));
    write("PUT", &format!("{path}/sortable-attributes"), json!(["n"])).await;
    write("DELETE", &format!("{path}/filterable-attributes"), json!(null)).await;
    assert_eq!(direct().await, json!(["_miroir_shard"]));
    let bad = cluster.http.json("PATCH", path, &json!({"nope": 1})).await;
    assert_eq!((bad.status, bad.code()), (400, "bad_request".into()), "a backend's own words");
    cluster.forget_requests();
    for path in [format!("{path}/nope"), "/indexes/fresh/settings/nope".to_owned()] {
        for method in ["PUT", "DELETE"] {
            let unknown = cluster.http.json(method, &path, &json!(["x"])).await;
            assert_eq!((unknown.status, unknown.body.len()), (404, 0), "{method} {path}");
        }
    }
    assert_eq!(cluster.writes(), [0, 0], "no index was made for a setting that is none");
    let bad = cluster.http.json("PATCH", path, &json!({"filterableAttributes": "g"})).await;
    assert_eq!(bad.code(), "invalid_settings_filterable_attributes");
}

#[tokio::test]
async fn documents_go_on_byte_for_byte() {
    let cluster = Cluster::start(Shape { groups: 1, members: 1, copies: 1, shards: 16 }).await;
    let documents = [
        "{\"z\": 1.10 ,\"id\":\"a\",\"big\":18446744073709551616,\"e\":1E+2}",
        "{ \"\\u0069d\":7, \"t\":\"\\u00e9\\/\\ud83d\\ude00 \u{e9}\" ,\"t\": [ 1 , {} ] }",
        "{\"id\":\"007\",\"n\":-0.0,\"deep\":{\"_miroir_shard\":5,\"a\":[null,true]}}",
    ];
    let body = format!(" [ {} ] ", documents.join(" , "));
    let http = cluster.http.with("content-type", "application/json");
    cluster.succeeded(&http.send("POST", PATH, body).await).await;
    let sent = cluster.fakes[0].writes();
    let sent = sent.iter().find(|seen| seen.target.contains("primaryKey=id")).unwrap();
    let injected = |(document, id): (&&str, &str)| {
        let shard = torc::document::shard::shard_for_key(id, 16).0;
        format!("{{\"_miroir_shard\":{shard},{}", &document[1..])
    };
    let expected: Vec<String> = documents.iter().zip(["a", "7", "007"]).map(injected).collect();
    assert_eq!(String::from_utf8_lossy(&sent.body), format!("[{}]", expected.join(",")));
}
