//! The depths of the same chains, on both sides of a stream, both ways.

use std::sync::{Arc, Mutex};

use dynamo_peer::consumer::Consumer;
use dynamo_peer::node::{Node, binary, loop_until};
use dynamo_peer::producer::Producer;
use dynamo_peer::proto::kv_event_relay_client::KvEventRelayClient;
use dynamo_peer::relay::Relay;
use dynamo_peer::{Chain, DOMAIN, MARKER, chains, proto};
use tonic::transport::Channel;

/// How a datacenter is called that is known by its number alone.
const OTHER_DC: &str = "#00000000000000dc";

async fn connect(node: &Node) -> KvEventRelayClient<Channel> {
    let address = format!("http://{}", node.relay);
    let client = loop_until("the relay listens", async || {
        KvEventRelayClient::connect(address.clone()).await.ok()
    });
    client.await.max_decoding_message_size(8 << 20)
}

/// The pool a node publishes of the domain.
async fn published(client: &mut KvEventRelayClient<Channel>) -> proto::ProducerIdentity {
    let request = proto::WatchKvPoolCatalogRequest {
        subscriber_id: "peer".into(),
        contract_marker: MARKER,
    };
    let mut catalog = client.watch_kv_pool_catalog(request).await.unwrap().into_inner();
    loop {
        let update = catalog.message().await.unwrap().expect("it does not end");
        let pools = update.snapshot.expect("a snapshot").pools;
        let is_wanted = |pool: &proto::KvPoolDescriptor| {
            pool.serving_endpoint.as_ref().is_some_and(|at| at.endpoint == DOMAIN)
        };
        if let Some(pool) = pools.into_iter().find(is_wanted) {
            return pool.producer.expect("a producer");
        }
    }
}

/// Stores every chain as far as it is held, through the last block of some a second time, and
/// takes those away again.
fn live(part: &[Chain], mut store: impl FnMut(u64, &[u64]), mut remove: impl FnMut(u64, &[u64])) {
    for (worker, chain) in (1..).zip(part) {
        let whole = (chain.held + 5).min(chain.blocks.len());
        if worker % 3 == 0 && whole > chain.held {
            store(worker, &chain.blocks[..whole]);
            remove(worker, &chain.blocks[chain.held..whole]);
        } else if chain.held > 0 {
            store(worker, &chain.blocks[..chain.held]);
        }
    }
}

#[tokio::test]
async fn the_crate_reads_a_nodes_filter() {
    let Some(binary) = binary() else { return };
    let node = Node::start(&binary, None);
    let mut engine = node.connect().await;
    let chains = chains();
    let (before, after) = chains.split_at(chains.len() / 2);
    let mut feed = |part: &[Chain]| {
        let engine = Mutex::new(&mut engine);
        let store = |worker, blocks: &[u64]| engine.lock().unwrap().store(worker, blocks);
        let remove = |worker, blocks: &[u64]| engine.lock().unwrap().remove(worker, blocks);
        live(part, store, remove);
    };
    feed(before);
    let mut client = connect(&node).await;
    let wire = published(&mut client).await;
    let mut consumer = Consumer::new(wire.clone());
    let request = proto::SubscribeKvPoolRequest {
        subscriber_id: "peer".into(),
        expected_producer: Some(wire),
        contract_marker: MARKER,
    };
    let mut stream = client.subscribe_kv_pool(request).await.unwrap().into_inner();
    let holds = |consumer: &Consumer, part: &[Chain]| {
        part.iter().all(|chain| consumer.depth(&chain.blocks) == Some(chain.held))
    };
    while !holds(&consumer, before) {
        consumer.take(&stream.message().await.unwrap().expect("it does not end"));
    }
    feed(after);
    while !holds(&consumer, &chains) {
        consumer.take(&stream.message().await.unwrap().expect("it does not end"));
    }
    assert!(consumer.deltas > 0);
    for chain in &chains {
        assert_eq!(engine.depth("dc1", &chain.blocks), Some(chain.held));
    }
}

#[tokio::test]
async fn a_node_reads_the_crates_filter() {
    let Some(binary) = binary() else { return };
    // Only a node can say how a node's domain is called.
    let mut wire = {
        let node = Node::start(&binary, None);
        published(&mut connect(&node).await).await
    };
    wire.producer_incarnation = 77;
    wire.pool_id.as_mut().expect("a pool").dc_id = 0xdc;
    let producer = Arc::new(Mutex::new(Producer::new(wire.clone())));
    let feed = |part: &[Chain]| {
        let store = |worker, blocks: &[u64]| producer.lock().unwrap().store(worker, blocks);
        let remove = |worker, blocks: &[u64]| producer.lock().unwrap().remove(worker, blocks);
        live(part, store, remove);
    };
    let chains = chains();
    let (before, after) = chains.split_at(chains.len() / 2);
    feed(before);
    let address = Relay::serve(wire, Arc::clone(&producer)).await.unwrap();
    let node = Node::start(&binary, Some(&address));
    let mut asker = node.connect().await;
    for part in [before, after] {
        if part.as_ptr() == after.as_ptr() {
            feed(after);
        }
        for chain in part {
            loop_until("the node gives the crate's depth", async || {
                (asker.depth(OTHER_DC, &chain.blocks) == Some(chain.held)).then_some(())
            })
            .await;
        }
    }
    for chain in &chains {
        assert_eq!(asker.depth(OTHER_DC, &chain.blocks), Some(chain.held));
    }
}
