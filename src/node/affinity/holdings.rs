//! What this node's datastore tells, taken into what the node tells others.

use std::mem::take;

use super::redis::StoreNews;
use crate::affinity::following::{Following, Way};
use crate::affinity::member::Change;
use crate::affinity::mesh::{Mesh, MeshTime};

/// What came of following the datastore so far. Its keys are in one shard.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    following: Following,
    changes: Vec<Change>,
    /// A rescan that is under way found keys the store had not told of. Only its end shows those
    /// that are gone, and until then the number of keys says nothing.
    is_mending: bool,
}

impl Holdings {
    /// What came of it so far.
    pub(super) fn following(&self) -> Following {
        self.following.clone()
    }

    /// Takes what the store told. True when the store has to be listed again.
    pub(super) fn take(&mut self, news: StoreNews, mesh: &mut Mesh, now: MeshTime) -> bool {
        let member = mesh.member();
        let changes = &mut self.changes;
        match news {
            StoreNews::Followed(way) => self.following.way = Some(way),
            StoreNews::Unsure(why) => self.doubt(why, mesh),
            StoreNews::Listing => member.begin_listing(0),
            StoreNews::Page(hashes) => {
                hashes.into_iter().for_each(|hash| member.appeared(0, hash, changes));
                if mesh.is_sure() {
                    self.following.mended_missed += self.changes.len() as u64;
                    self.is_mending |= !self.changes.is_empty();
                }
            }
            StoreNews::Listed if member.end_listing(changes) => self.listed(mesh, now),
            // It was listed, and missed something meanwhile: it is being listed again.
            StoreNews::Listed => {}
            StoreNews::Changed(told) => {
                for change in told {
                    match change {
                        Change::Stored(hash) => member.appeared(0, hash, changes),
                        Change::Removed(hash) => member.went(0, hash, changes),
                    }
                }
            }
            StoreNews::Load(load) => mesh.set_load(load),
            StoreNews::Size(0) if !member.is_empty() => {
                tracing::info!("the store was flushed");
                member.cleared(0, changes);
            }
            StoreNews::Size(size) => return self.compare(size, mesh),
        }
        if !self.changes.is_empty() {
            mesh.changed(&take(&mut self.changes), now);
        }
        false
    }

    fn listed(&mut self, mesh: &mut Mesh, now: MeshTime) {
        self.is_mending = false;
        let of = &mut self.following;
        if mesh.is_sure() {
            of.rescans += 1;
            of.mended_gone += self.changes.len() as u64;
        } else {
            of.relistings += 1;
            mesh.set_sure(true);
        }
        (of.listed_ms, of.trouble) = (Some(now.mono_ms), None);
    }

    /// The number of keys was counted at the very point of the store's events at which it is
    /// told, so a difference means that events are missing.
    fn compare(&mut self, size: u64, mesh: &mut Mesh) -> bool {
        // Of a store that tells of nothing it is no news that keys came and went.
        let tells = self.following.way != Some(Way::Observed) && !self.is_mending;
        let differs = size != mesh.member().len() as u64 && mesh.is_sure() && tells;
        if differs {
            tracing::info!(size, "the store changed without events: it is listed again");
            self.doubt("the store changed without events".to_owned(), mesh);
        }
        differs
    }

    fn doubt(&mut self, why: String, mesh: &mut Mesh) {
        mesh.set_sure(false);
        // One that is under way is of a store that is not followed any more.
        mesh.member().forget_listing();
        self.following.trouble = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::Affinity;
    use crate::affinity::domain::tests::spec;
    use crate::affinity::domain::{Domain, Kind};
    use crate::affinity::mesh::MeshSettings;
    use crate::ckf::hashing::SequenceHash;
    use crate::ckf::producer::Source;
    use crate::ckf::ringkey::KeyProtocol;
    use crate::proto::dnode::control::ControlSeal;
    use std::sync::Arc;

    fn mesh() -> Mesh {
        let spec = spec("keys", Kind::Keys(KeyProtocol::Resp), &["dc1"]);
        let affinity = Affinity::new(Arc::new(Domain::new(spec).unwrap()), Vec::new());
        let settings = MeshSettings {
            seal: ControlSeal::new("test", None),
            pinned: None,
            source: Source { worker_id: 1, dp_rank: 0 },
            rng_seed: 1,
        };
        Mesh::new(settings, &affinity, 1, MeshTime { mono_ms: 0, wall_ms: 1 })
    }

    fn page(keys: &[u64]) -> StoreNews {
        StoreNews::Page(keys.iter().copied().map(SequenceHash).collect())
    }

    #[test]
    fn keys_are_not_counted_while_a_rescan_mends() {
        let (mut mesh, mut holdings) = (mesh(), Holdings::default());
        let mut take = |news| holdings.take(news, &mut mesh, MeshTime { mono_ms: 5, wall_ms: 6 });
        take(StoreNews::Followed(Way::OlderEvents));
        for news in [StoreNews::Listing, page(&[1, 2]), StoreNews::Listed] {
            take(news);
        }
        assert!(!take(StoreNews::Size(2)));
        // 2 went and 3 came without a word.
        take(StoreNews::Listing);
        assert!(!take(StoreNews::Size(2)));
        take(page(&[1, 3]));
        assert!(!take(StoreNews::Size(2)), "2 is believed to be there until the end");
        take(StoreNews::Listed);
        assert!(!take(StoreNews::Size(2)));
        assert!(take(StoreNews::Size(3)), "it is listed again");
        let following = holdings.following();
        assert_eq!((following.mended_missed, following.mended_gone), (1, 1));
        assert_eq!((following.relistings, following.rescans), (1, 1));
    }
}
