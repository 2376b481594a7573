//! The gateway's own fields in documents, with the switches on.

use crate::cluster::{Cluster, NODE_KEY, Shape};
use crate::fake::clock;
use crate::http::Http;
use serde_json::{Value, json};

const SHAPE: Shape = Shape { groups: 1, members: 2, copies: 2, shards: 16 };
const PATH: &str = "/indexes/movies/documents";

#[tokio::test]
async fn switched_on_fields_are_written_kept_from_clients_and_filterable() {
    let cluster = Cluster::with(SHAPE, |settings| {
        settings.reserved.anti_entropy = true;
        settings.reserved.ttl = true;
    })
    .await;
    let before = clock().now_us() / 1_000;
    let document = json!({"id": 1, "_miroir_other": 2});
    cluster.add(&json!([document])).await;
    let stored: Vec<Value> =
        cluster.fakes.iter().map(|f| f.engine(|e| e.document("movies", "1")).unwrap()).collect();
    let updated = stored[0]["_miroir_updated_at"].as_u64().unwrap();
    assert!((before..=clock().now_us() / 1_000).contains(&updated));
    assert_eq!(stored[0], stored[1], "every copy has the same time");
    // Something beside the gateway sets the time a document ends.
    let direct = Http::new(cluster.fakes[0].url());
    let direct = direct.with("authorization", &format!("Bearer {NODE_KEY}"));
    let expires = json!([{"id": 1, "_miroir_expires_at": 5}]);
    assert_eq!(direct.json("PUT", PATH, &expires).await.status, 202);
    crate::cluster::eventually("it is set", async || {
        let stored = cluster.fakes[0].engine(|e| e.document("movies", "1")).unwrap();
        stored.get("_miroir_expires_at").is_some()
    })
    .await;
    for _ in 0..2 {
        assert_eq!(cluster.http.get(&format!("{PATH}/1")).await.json(), document);
        assert_eq!(cluster.http.get(PATH).await.json()["results"], json!([document]));
        let found = cluster.post("/indexes/movies/search", &json!({})).await.json();
        assert_eq!(found["hits"], json!([document]));
    }
    let settings = direct.get("/indexes/movies/settings/filterable-attributes").await;
    assert_eq!(settings.json(), json!(["_miroir_shard", "_miroir_expires_at"]));
    let shown = cluster.http.get("/indexes/movies/settings").await.json();
    assert_eq!(shown["filterableAttributes"], json!([]));
    let stats = cluster.http.get("/indexes/movies/stats").await.json();
    assert_eq!(stats["fieldDistribution"], json!({"id": 1, "_miroir_other": 1}));
    cluster.forget_requests();
    for field in ["_miroir_shard", "_miroir_updated_at", "_miroir_expires_at"] {
        let refused = cluster.post(PATH, &json!([{"id": 2, (field): 1}])).await;
        assert_eq!((refused.status, refused.code()), (400, "miroir_reserved_field".into()));
        assert!(refused.json()["message"].as_str().unwrap().contains(field));
    }
    assert_eq!(cluster.writes(), [0, 0]);
}
