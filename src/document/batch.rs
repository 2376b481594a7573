//! Request bytes to documents, and documents to one payload per backend.
//!
//! A batch is the request's own text plus the place, shard and id of each document. Payloads are
//! made from it piece by piece while they are sent, so a large batch costs its own size once,
//! however many backends take a copy.

use super::csv;
use super::error::{DocumentError, PayloadKind};
use super::object::{self, shorten};
use super::primary_key::{IdProblem, canonical_id};
use super::reserved::{Reserved, SHARD_FIELD, UPDATED_FIELD};
use super::shard::{ShardId, ShardSet, shard_for_key};
use crate::proto::args::Span;
use bytes::Bytes;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;

/// Documents below this size are copied into a payload's pieces, larger ones are shared.
const COPY_BYTES_MAX: usize = 16 * 1024;
/// Size from which a piece is handed out.
const PIECE_BYTES: usize = 64 * 1024;

/// How a request body carries documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An array of objects, or one object.
    Json,
    /// Objects one after another.
    Ndjson,
    /// A header line and records, with the separator.
    Csv(u8),
}

impl Format {
    /// The form's name.
    pub fn kind(self) -> PayloadKind {
        match self {
            Format::Json => PayloadKind::Json,
            Format::Ndjson => PayloadKind::Ndjson,
            Format::Csv(_) => PayloadKind::Csv,
        }
    }
}

/// The objects of a request body, found but not yet judged.
#[derive(Clone, Debug)]
pub struct Documents {
    text: Bytes,
    spans: Vec<Span>,
}

impl Documents {
    /// Finds the documents in a body. `bytes_max` bounds the text that CSV is expanded to.
    ///
    /// # Errors
    /// The body is empty, no UTF-8, not of this form, holds something that is no object, or an
    /// object nested too deep.
    pub fn parse(
        format: Format,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<Documents, DocumentError> {
        let kind = format.kind();
        if body.is_empty() {
            return Err(DocumentError::MissingPayload(kind));
        }
        if body.len().max(bytes_max) > u32::MAX as usize {
            return Err(DocumentError::TooLarge(u32::MAX as usize));
        }
        let malformed = |reason: String| DocumentError::Malformed { kind, reason };
        let text = std::str::from_utf8(&body).map_err(|e| malformed(e.to_string()))?;
        let spans = match format {
            Format::Json => json_spans(text).map_err(malformed)?,
            Format::Ndjson => ndjson_spans(text).map_err(malformed)?,
            Format::Csv(delimiter) => {
                let (text, spans) = csv::to_objects(text, delimiter, bytes_max)?;
                return Ok(Documents { text: Bytes::from(text), spans });
            }
        };
        for (i, span) in spans.iter().enumerate() {
            let document = span_text(text, *span);
            object::check_depths(document)
                .map_err(|reason| malformed(format!("document {i}: {reason}")))?;
        }
        Ok(Documents { text: body, spans })
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True for an empty array.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of text the documents are in.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Whether the first document has this top-level field.
    pub fn first_has(&self, field: &str) -> bool {
        self.spans
            .first()
            .is_some_and(|span| object::field(text_of(&self.text, *span), field).is_some())
    }
}

/// The text of a document. Spans come from a checked parse, so the bytes are UTF-8.
fn text_of(text: &Bytes, span: Span) -> &str {
    std::str::from_utf8(span.of(text)).unwrap_or_default()
}

fn span_text(text: &str, span: Span) -> &str {
    &text[span.start as usize..span.end as usize]
}

/// The place of `part` inside `whole`, of which it is a slice.
fn place(whole: &str, part: &str) -> Span {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    Span::new(start, start + part.len())
}

fn json_spans(text: &str) -> Result<Vec<Span>, String> {
    let trimmed = text.trim_start_matches([' ', '\t', '\r', '\n']);
    let prefix = "Couldn't serialize document value: ";
    let values: Vec<&RawValue> = match trimmed.as_bytes().first() {
        Some(b'[') => serde_json::from_str(text).map_err(|e| format!("{prefix}{e}"))?,
        Some(b'{') => vec![serde_json::from_str(text).map_err(|e| format!("{prefix}{e}"))?],
        _ if object::is_json(text) => {
            return Err(format!("{prefix}data are neither an object nor a list of objects"));
        }
        _ => {
            let error = serde_json::from_str::<&RawValue>(text).err();
            return Err(error.map_or_else(String::new, |e| format!("{prefix}{e}")));
        }
    };
    object_spans(text, values)
}

fn ndjson_spans(text: &str) -> Result<Vec<Span>, String> {
    let values = serde_json::Deserializer::from_str(text)
        .into_iter::<&RawValue>()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| e.to_string())?;
    object_spans(text, values)
}

fn object_spans(text: &str, values: Vec<&RawValue>) -> Result<Vec<Span>, String> {
    let mut spans = Vec::with_capacity(values.len());
    for (i, value) in values.into_iter().enumerate() {
        if !value.get().starts_with('{') {
            return Err(format!("document {i} is no object: {}", shorten(value.get())));
        }
        spans.push(place(text, value.get()));
    }
    Ok(spans)
}

#[derive(Clone, Copy, Debug)]
struct Document {
    span: Span,
    /// The JSON text of the primary key's value.
    id: Span,
    shard: ShardId,
    has_fields: bool,
}

/// Documents that may be stored, each with its shard.
#[derive(Clone, Debug)]
pub struct Batch {
    text: Bytes,
    documents: Vec<Document>,
    shards: u32,
    updated_at_ms: Option<u64>,
}

impl Batch {
    /// Judges every document and finds its shard. `now_ms` is written into documents when
    /// anti-entropy is on.
    ///
    /// # Errors
    /// The first document, in request order, that carries a reserved field or has no valid id.
    /// Nothing of the batch may be sent then.
    pub fn route(
        documents: Documents,
        primary_key: &str,
        reserved: &Reserved,
        shards: u32,
        now_ms: u64,
    ) -> Result<Batch, DocumentError> {
        let mut routed = Vec::with_capacity(documents.len());
        for (position, span) in documents.spans.iter().enumerate() {
            routed.push(judge(&documents.text, *span, position, primary_key, reserved, shards)?);
        }
        let updated_at_ms = reserved.anti_entropy.then_some(now_ms);
        Ok(Batch { text: documents.text, documents: routed, shards, updated_at_ms })
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// True when there is no document.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// The shards the documents belong to.
    pub fn touched(&self) -> ShardSet {
        let mut touched = ShardSet::none(self.shards);
        for document in &self.documents {
            touched.insert(document.shard);
        }
        touched
    }

    /// Canonical ids and shards, in request order.
    pub fn ids(&self) -> impl Iterator<Item = (Cow<'_, str>, ShardId)> {
        self.documents.iter().map(|document| {
            let id = canonical_id(text_of(&self.text, document.id)).unwrap_or_default();
            (id, document.shard)
        })
    }

    /// The array of all documents that belong to `shards`, in request order.
    pub fn payload(self: &Arc<Self>, shards: ShardSet) -> Payload {
        let mut payload = Payload {
            batch: self.clone(),
            shards,
            next: 0,
            state: State::Open,
            total_bytes: 0,
            any: false,
        };
        payload.total_bytes = payload.measure();
        payload
    }

    /// Writes what stands in place of a document's opening brace.
    fn inject(&self, document: &Document, out: &mut Vec<u8>) {
        let mut field = |before: &[u8], name: &str, value: u64| {
            for part in
                [before, name.as_bytes(), b"\":", itoa::Buffer::new().format(value).as_bytes()]
            {
                out.extend_from_slice(part);
            }
        };
        field(b"{\"", SHARD_FIELD, document.shard.0.into());
        if let Some(ms) = self.updated_at_ms {
            field(b",\"", UPDATED_FIELD, ms);
        }
        if document.has_fields {
            out.push(b',');
        }
    }
}

fn judge(
    text: &Bytes,
    span: Span,
    position: usize,
    primary_key: &str,
    reserved: &Reserved,
    shards: u32,
) -> Result<Document, DocumentError> {
    let document = text_of(text, span);
    let mut has_fields = false;
    let mut taken = None;
    let mut id = None;
    let read = object::fields(document, |name, value| {
        has_fields = true;
        if taken.is_none() && reserved.contains(&name) {
            taken = Some(name.clone().into_owned());
        }
        if name == primary_key {
            id = Some(value);
        }
    });
    if let Err(error) = read {
        let reason = format!("document {position}: {error}");
        return Err(DocumentError::Malformed { kind: PayloadKind::Json, reason });
    }
    if let Some(field) = taken {
        return Err(DocumentError::Reserved { field, position });
    }
    let missing = || DocumentError::MissingId { field: primary_key.to_owned(), position };
    let raw = id.ok_or_else(missing)?;
    let canonical = canonical_id(raw).map_err(|problem| match problem {
        IdProblem::Missing => missing(),
        IdProblem::Invalid => DocumentError::InvalidId { value: shorten(raw), position },
    })?;
    let start = place(document, raw).start + span.start;
    let id = Span { start, end: start + raw.len() as u32 };
    Ok(Document { span, id, shard: shard_for_key(&canonical, shards), has_fields })
}

#[derive(Clone, Debug)]
enum State {
    Open,
    Documents,
    /// A large document whose opening part was handed out.
    Shared(Bytes),
    Done,
}

/// One backend's array of documents, made piece by piece.
#[derive(Clone, Debug)]
pub struct Payload {
    batch: Arc<Batch>,
    shards: ShardSet,
    next: usize,
    state: State,
    any: bool,
    total_bytes: u64,
}

impl Payload {
    /// Bytes of the whole payload.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn measure(&self) -> u64 {
        let mut bytes = 2;
        let mut count = 0;
        let mut injected = Vec::new();
        for document in &self.batch.documents {
            if self.shards.contains(document.shard) {
                injected.clear();
                self.batch.inject(document, &mut injected);
                bytes += document.span.len() - 1 + injected.len();
                count += 1;
            }
        }
        (bytes + usize::max(count, 1) - 1) as u64
    }

    /// The next piece, `None` at the end.
    pub fn next_piece(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.state, State::Documents) {
            State::Done => {
                self.state = State::Done;
                None
            }
            State::Shared(tail) => Some(tail),
            State::Open => Some(self.compose(vec![b'['])),
            State::Documents => Some(self.compose(Vec::new())),
        }
    }

    fn compose(&mut self, mut out: Vec<u8>) -> Bytes {
        while let Some(document) = self.batch.documents.get(self.next).copied() {
            self.next += 1;
            if !self.shards.contains(document.shard) {
                continue;
            }
            if std::mem::replace(&mut self.any, true) {
                out.push(b',');
            }
            self.batch.inject(&document, &mut out);
            let rest = document.span.start as usize + 1..document.span.end as usize;
            if rest.len() >= COPY_BYTES_MAX {
                self.state = State::Shared(self.batch.text.slice(rest));
                return Bytes::from(out);
            }
            out.extend_from_slice(&self.batch.text[rest]);
            if out.len() >= PIECE_BYTES {
                return Bytes::from(out);
            }
        }
        out.push(b']');
        self.state = State::Done;
        Bytes::from(out)
    }
}
