//! The recorded conversation with a Meilisearch v1.50.0 (`backend_transcript` of
//! `tests/vectors/documents.json`), replayed against the fake: what tests rely on must be what a
//! real server does.

use crate::cluster::{Cluster, Shape, eventually};
use crate::fake::Fake;
use crate::http::Http;
use serde_json::{Value, json};

const KEY: &str = "transcript-key";

fn rows(name: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/documents.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    vectors[name].as_array().unwrap().clone()
}

/// Where `got` differs from `expected`, `*` matching anything.
fn difference(expected: &Value, got: &Value, at: &str) -> Option<String> {
    match (expected, got) {
        (Value::String(any), _) if any == "*" => None,
        (Value::Object(a), Value::Object(b)) => {
            if let Some(extra) = b.keys().find(|key| !a.contains_key(*key)) {
                return Some(format!("{at}.{extra} is too much"));
            }
            a.iter().find_map(|(key, value)| {
                let Some(got) = b.get(key) else { return Some(format!("{at}.{key} is missing")) };
                difference(value, got, &format!("{at}.{key}"))
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).find_map(|(a, b)| difference(a, b, &format!("{at}[]")))
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        (a, b) if a == b => None,
        (a, b) => Some(format!("{at}: expected {a}, got {b}")),
    }
}

async fn finished(client: &Http, uid: &Value) -> Value {
    let mut task = Value::Null;
    eventually("the task is finished", async || {
        task = client.get(&format!("/tasks/{uid}")).await.json();
        !["enqueued", "processing"].contains(&task["status"].as_str().unwrap())
    })
    .await;
    task
}

#[tokio::test]
async fn the_fake_answers_as_the_recorded_server() {
    let fake = Fake::start(Some(KEY)).await;
    let differences = replay(&fake.url(), KEY).await;
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Asks an empty server with this master key all that was recorded; where it differs.
pub(crate) async fn replay(url: &str, key: &str) -> Vec<String> {
    let plain = Http::new(url);
    let master = plain.with("authorization", &format!("Bearer {key}"));
    let rows = rows("backend_transcript");
    assert_eq!(rows.len(), 80);
    let mut differences = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let request = &row["request"];
        let mut client = match request["auth"].as_str().unwrap() {
            "none" => plain.clone(),
            "wrong" => plain.with("authorization", "Bearer wrong"),
            _ => master.clone(),
        };
        if let Some(kind) = request["content_type"].as_str() {
            client = client.with("content-type", kind);
        }
        let body = request["body"].as_str().unwrap_or_default().to_owned();
        let (method, path) = (request["method"].as_str().unwrap(), request["path"].as_str());
        let answer = client.send(method, path.unwrap(), body).await;
        let got = answer.json();
        let expected = &row["response"];
        let mut note = |found: Option<String>| {
            differences.extend(found.map(|found| format!("{i}: {request}\n    {found}")));
        };
        note((expected["status"] != answer.status).then(|| format!("status {}", answer.status)));
        note(difference(&expected["body"], &got, "body"));
        if row.get("final_task").is_some() {
            let task = finished(&master, &got["taskUid"]).await;
            note(difference(&row["final_task"], &task, "task"));
        }
    }
    differences
}

/// `sdk_requests` of the vectors: what the SDKs were seen to send, byte for byte.
#[tokio::test]
async fn every_recorded_request_of_the_sdks_is_answered() {
    let cluster = Cluster::start(Shape { groups: 2, members: 2, copies: 1, shards: 16 }).await;
    let requests = rows("sdk_requests");
    assert_eq!(requests.len(), 30);
    for request in &requests {
        let (method, path) = (request["method"].as_str().unwrap(), request["path"].as_str());
        let (path, body) = (path.unwrap(), request["body"].as_str().unwrap_or_default());
        let mut client = cluster.http.clone();
        if let Some(kind) = request["content_type"].as_str() {
            client = client.with("content-type", kind);
        }
        let answer = client.send(method, path, body.to_owned()).await;
        match answer.status {
            202 => assert_eq!(cluster.task(&answer).await["status"], "succeeded", "{request}"),
            404 => assert!(path.ends_with("/zzz"), "{request}"),
            status => assert_eq!(status, 200, "{request}: {:?}", answer.json()),
        }
        if (method, path) == ("POST", "/indexes") {
            let uid = answer.json()["indexUid"].as_str().unwrap().to_owned();
            let path = format!("/indexes/{uid}/settings/filterable-attributes");
            let answer = cluster.http.json("PUT", &path, &json!(["genre"])).await;
            cluster.succeeded(&answer).await;
        }
    }
}
