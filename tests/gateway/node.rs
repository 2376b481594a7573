//! Gateways of real nodes: groups from the racks, small state in the ring, nodes that are killed.

use crate::cluster::{eventually, finished};
use crate::fake::Fake;
use crate::http::Http;
use crate::ports::free_port;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATH: &str = "/indexes/movies/documents";

/// One node process and what it listens on.
pub(crate) struct Node {
    file: std::path::PathBuf,
    child: Child,
    pub(crate) clients: u16,
    documents: u16,
    admin: u16,
}

impl Node {
    pub(crate) fn spawn(file: std::path::PathBuf, [clients, documents, admin]: [u16; 3]) -> Node {
        let log = std::fs::File::create(file.with_extension("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_torc"))
            .args(["run", "--until-eof", "-c"])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Node { file, child, clients, documents, admin }
    }

    pub(crate) fn http(&self) -> Http {
        Http::new(format!("http://127.0.0.1:{}", self.documents))
    }

    /// Its admin port.
    fn admin(&self) -> Http {
        Http::new(format!("http://127.0.0.1:{}", self.admin))
    }

    /// Whether the node could write to every rack now.
    async fn is_connected(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.clients)).await else {
            return false;
        };
        let mut plan = vec![0; 64 * 1024];
        if stream.write_all(b"TORC.PLAN SET x 1\r\n").await.is_err() {
            return false;
        }
        let read = stream.read(&mut plan).await.unwrap_or(0);
        let plan = String::from_utf8_lossy(&plan[..read]).into_owned();
        read > 0 && !plan.contains("not connected") && !plan.contains("missed")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        let ports = [self.clients, self.documents, self.admin];
        *self = Node::spawn(self.file.clone(), ports);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    (0..count).map(|_| free_port()).collect()
}

/// A folder that goes with its last node.
pub(crate) struct Folder(pub(crate) std::path::PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let name = format!("torc-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("logs are kept in {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// The line of a file that keeps a node's data in its own memory.
pub(crate) const EMBEDDED: &str = "  datastore: embedded\n";

/// Lines of a node on a machine of any speed: it waits for an answer, and does not take a node for
/// dead because that one says nothing for some seconds. Who is killed refuses connections.
pub(crate) const PATIENT: &str = "  timeout: 300000\n  cluster: {phi_threshold: 300}\n";

/// The same of its gateway.
const PATIENT_GATEWAY: &str = "    node_timeout_ms: 300000\n    request_timeout_ms: 600000\n    \
                               task_lost_after_ms: 3600000\n";

/// One node in each rack, a fake behind each; the lines of the store and `extra` lines of the
/// `documents` section by node.
pub(crate) fn ring(
    name: &str,
    fakes: &[Fake],
    store: impl Fn(usize) -> String,
    extra: impl Fn(usize) -> &'static str,
) -> Ring {
    let home = Folder::new(name);
    let folder = &home.0;
    let ports = free_ports(4 * fakes.len());
    let nodes: Vec<_> = ports
        .chunks(4)
        .enumerate()
        .map(|(i, ports)| (folder.join(format!("n{i}.yml")), ports.to_vec()))
        .collect();
    let mut started = Vec::new();
    for (i, (file, own)) in nodes.iter().enumerate() {
        let mut text = format!(
            "ring:\n  name: n{i}\n  datacenter: dc1\n  rack: r{i}\n  tokens: 0\n  workers: 1\n  \
             listen: 127.0.0.1:{}\n  dyn_listen: 127.0.0.1:{}\n  \
             stats_listen: 127.0.0.1:{}\n{}{PATIENT}  dyn_seeds:\n",
            own[0],
            own[1],
            own[2],
            store(i)
        );
        for (other, (_, ports)) in nodes.iter().enumerate().filter(|(other, _)| *other != i) {
            text += &format!("  - 127.0.0.1:{}:r{other}:dc1:0 n{other}\n", ports[1]);
        }
        text += &format!("  documents:\n    listen: 127.0.0.1:{}\n{}", own[3], extra(i));
        text += PATIENT_GATEWAY;
        text += "    backends:\n";
        for (other, fake) in fakes.iter().enumerate() {
            text += &format!("      n{other}: {}\n", fake.url());
        }
        std::fs::write(file, text).unwrap();
        started.push(Node::spawn(file.clone(), [own[0], own[3], own[2]]));
    }
    Ring { nodes: started, _home: home }
}

/// Nodes, and the folder of their files.
pub(crate) struct Ring {
    pub(crate) nodes: Vec<Node>,
    _home: Folder,
}

/// Waits until the node's gateway can write to every rack.
pub(crate) async fn serves(node: &Node) {
    let http = node.http();
    eventually("the gateway is ready", async || {
        http.try_get("/_miroir/ready").await.is_some_and(|answer| answer.status == 200)
    })
    .await;
    eventually("its links stand", async || node.is_connected().await).await;
}

#[tokio::test]
async fn gateways_of_a_ring_share_their_state_and_survive_killed_nodes() {
    let mut fakes = Vec::new();
    for _ in 0..3 {
        fakes.push(Fake::start(None).await);
    }
    let mut ring = ring("documents", &fakes, |_| EMBEDDED.into(), |_| "");
    let nodes = &mut ring.nodes;
    let (first, second) = (nodes[0].http(), nodes[1].http());
    for node in nodes.iter() {
        serves(node).await;
    }
    let topology = first.get("/_miroir/topology").await.json();
    let groups = topology["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 3, "a group per rack: {topology}");

    let made = first
        .with("idempotency-key", "k")
        .json("POST", "/_miroir/aliases", &json!({"name": "films", "target": "movies"}))
        .await;
    assert_eq!(made.status, 200, "{:?}", made.json());
    let answer = first.json("POST", PATH, &json!([{"id": 1, "title": "Dune"}])).await;
    assert_eq!(answer.status, 202, "{:?}", answer.json());
    nodes[0].kill();
    // A read that was on its way to the killed node fails: ask until it is told.
    let path = format!("/tasks/{}", answer.json()["taskUid"]);
    eventually("the other gateway answers for the task", async || {
        second.get(&path).await.json()["status"] == "succeeded"
    })
    .await;
    eventually("the alias is known elsewhere", async || {
        second.get("/indexes/films/documents/1").await.status == 200
    })
    .await;
    let more = second.json("POST", PATH, &json!([{"id": 2}])).await;
    assert_ne!(more.json()["taskUid"], answer.json()["taskUid"]);
    assert_eq!(finished(&second, &more).await["status"], "succeeded");

    nodes[0].restart();
    serves(&nodes[0]).await;
    // Two of three racks lose what they stored. What the third has is the newest there is.
    nodes[1].kill();
    nodes[1].restart();
    serves(&nodes[1]).await;
    for node in nodes.iter() {
        for uid in [&answer.json()["taskUid"], &more.json()["taskUid"]] {
            let (http, path) = (node.http(), format!("/tasks/{uid}"));
            eventually("it answers for the task", async || {
                // While links are made anew it says that it does not know, never "no such task".
                let task = http.get(&path).await;
                assert!(matches!(task.status, 200 | 503), "{:?}", task.json());
                task.json()["status"] == "succeeded"
            })
            .await;
        }
        eventually("it knows the alias", async || {
            let film = node.http().get("/indexes/films/documents/1").await;
            assert!(matches!(film.status, 200 | 503), "{:?}", film.json());
            film.json() == json!({"id": 1, "title": "Dune"})
        })
        .await;
    }
    let (code, shown, _) = documents(&nodes[0], &["owners"], &["films", "1"]).await;
    assert_eq!(code, Some(0));
    assert!(shown.starts_with("document 1 of movies: hash 13bbf5d430c49824, shard 36 of 64"));
    assert_eq!(shown.matches("has it: yes").count(), 3, "{shown}");
    migrate_by_hand(nodes).await;
    look_at_admin_ports(nodes).await;
}

/// `torc documents` with a node's file: its exit code, what it says, and its complaint.
async fn documents(
    node: &Node,
    command: &[&str],
    arguments: &[&str],
) -> (Option<i32>, String, String) {
    let ran = tokio::process::Command::new(env!("CARGO_BIN_EXE_torc"))
        .arg("documents")
        .args(command)
        .arg("-c")
        .arg(&node.file)
        .args(arguments)
        .output()
        .await
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

/// A migration is started, shown and given up from the command line.
async fn migrate_by_hand(nodes: &[Node]) {
    let status = async || documents(&nodes[1], &["migrate", "status"], &[]).await.1;
    assert_eq!(status().await, "phase: none\n");
    let start =
        async |arguments: &[&str]| documents(&nodes[0], &["migrate", "start"], arguments).await;
    let (code, _, said) = start(&["--remove", "nobody"]).await;
    assert!(code == Some(1) && said.contains("there is no backend `nobody`"), "{said}");
    let (code, _, said) = start(&["--add", "s3@0"]).await;
    assert!(code == Some(64) && said.contains("--add ID=URL@GROUP"), "{said}");
    let (code, shown, said) = start(&["--add", "s3=http://127.0.0.1:1@0"]).await;
    assert!(code == Some(0) && shown.starts_with("phase: copying"), "{shown}{said}");
    assert!(status().await.contains("to:    [[\"n0\",\"s3\"],[\"n1\"],[\"n2\"]]"), "elsewhere");
    let (code, shown, _) = documents(&nodes[2], &["migrate", "end"], &[]).await;
    assert!(code == Some(0) && shown.starts_with("phase: ended"), "{shown}");
}

/// What the admin ports show of the gateways.
async fn look_at_admin_ports(nodes: &[Node]) {
    for (i, node) in nodes.iter().enumerate() {
        let admin = node.admin();
        let mut page = Value::Null;
        eventually("the gateways have heard of each other", async || {
            page = admin.get("/documents").await.json();
            let others = page["otherGateways"].as_array().into_iter().flatten();
            let slots = others.chain([&page["gateway"]]).filter_map(|one| one["taskSlot"].as_u64());
            // Which one a gateway gets depends on who was there when it looked.
            let slots: BTreeSet<u64> = slots.collect();
            let given_up = page["migration"]["phase"] == "ended" && page["joining"] == json!([]);
            slots.len() == nodes.len() && given_up
        })
        .await;
        assert_eq!(page["gateway"]["id"], format!("dc1/r{i}/0"), "{page}");
        assert_eq!(page["groups"][2]["backends"][0]["id"], "n2", "{page}");
        assert_eq!(page["groups"][2]["backends"][0]["owns"], "0-63", "{page}");
        assert_eq!(page["groups"][0]["degradedWrites"], 0, "{page}");
        let metrics = String::from_utf8(admin.get("/metrics").await.body.to_vec()).unwrap();
        for line in [
            "torc_documents_backend_up{backend=\"n1\"} 1",
            "torc_documents_backend_shards{backend=\"n0\"} 64",
            "torc_documents_bytes_in_flight 0",
            "# HELP torc_documents_writes_acked Writes that met their quorum",
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
        }
        eventually("it is healthy", async || admin.get("/health").await.status == 200).await;
    }
}

#[tokio::test]
async fn gateways_that_mean_other_groups_are_unhealthy() {
    let fakes = [Fake::start(None).await, Fake::start(None).await];
    let extra = |i| if i == 1 { "    shards: 32\n" } else { "" };
    let ring = ring("differing", &fakes, |_| EMBEDDED.into(), extra);
    for node in &ring.nodes {
        let admin = node.admin();
        eventually("health is red", async || {
            let health = admin.try_get("/health").await;
            let Some(health) = health.filter(|health| health.status == 503) else { return false };
            let health = health.json();
            let alarms = health["alarms"].as_array().into_iter().flatten();
            let mut alarms = alarms.filter_map(Value::as_str);
            let differing = "documents: shards, replication_factor or backends of dc1/r";
            health["status"] == "alarm" && alarms.any(|alarm| alarm.starts_with(differing))
        })
        .await;
    }
}
