//! Any bytes as what another node sends: the same header, or the same error, however they are cut
//! and however much junk stands before it; what was found is written and read again as the same.

use torc::proto::dnode::{Ext, Header, HeaderDecoder, HeaderError, HeaderLimits, put_header};

/// Runs one input: a byte that says how long the pieces are, and the bytes.
pub(crate) fn run(input: &[u8]) {
    let [step, bytes @ ..] = input else { return };
    let limits = HeaderLimits { data_max: 256, body_max: 1 << 16 };
    let whole = HeaderDecoder::default().decode(bytes, &limits);
    let parts = in_pieces(usize::from(*step).max(1), bytes, &limits);
    assert_eq!(whole.map_err(kind_of), parts.map_err(kind_of));
    let Ok(Some(header)) = whole else { return };
    assert!(header.skipped < header.len && header.len <= bytes.len());
    let data = header.data.of(bytes);
    let ext = Ext::parse(data);
    assert_eq!(Ext::parse(ext.encode().as_slice()), ext);
    if data.is_empty() {
        return;
    }
    let Header { id, kind, flags, version, same_dc, plen, .. } = header;
    let mut again = Vec::new();
    put_header(&mut again, id, kind, flags, version, same_dc, data, plen);
    let read = HeaderDecoder::default().decode(&again, &limits);
    let read = read.expect("a header").expect("a whole one");
    assert_eq!((read.len, read.skipped), (again.len(), 0));
    assert_eq!(read.data.of(&again), data);
    assert_eq!((read.id, read.kind, read.flags, read.plen), (id, kind, flags, plen));
    assert_eq!((read.version, read.same_dc), (version, same_dc));
}

/// The first header when bytes arrive in pieces and junk is dropped; its offsets are those in the
/// whole.
fn in_pieces(
    step: usize,
    bytes: &[u8],
    limits: &HeaderLimits,
) -> Result<Option<Header>, HeaderError> {
    let (mut decoder, mut dropped) = (HeaderDecoder::default(), 0);
    for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
        if let Some(mut header) = decoder.decode(&bytes[dropped..end], limits)? {
            header.len += dropped;
            header.skipped += dropped;
            header.data.start += dropped as u32;
            header.data.end += dropped as u32;
            return Ok(Some(header));
        }
        dropped += decoder.take_junk();
    }
    Ok(None)
}

/// An error without its offset.
fn kind_of(error: HeaderError) -> u64 {
    match error {
        HeaderError::DataTooLong { len, .. } | HeaderError::BodyTooLong { len, .. } => len,
    }
}
