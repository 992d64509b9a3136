//! The walk over one family from its first byte to its last: block by block, stream by stream. It checks the checksum of
//! every header, and gives [`Event`]s. It holds one block and one extent in memory, however long the family is.

use fullbore_core::{Error, Result};

use super::backup_checksum::BackupChecksum;
use super::block::{BLOCK_HEADER, BlockHeader, BlockKind};
use super::configuration::{CONFIGURATION_MAX, Configuration};
use super::fields::Fields;
use super::input::Input;
use super::label::{MediaLabel, Stripe, Tape};
use super::log_range::LogRange;
use super::page::EXTENT;
use super::set::{self, SetHeader};
use super::stream::{STREAM_HEADER, StreamHeader};

/// Bytes before the pages or the log in a stream.
const CONTENT_PREFIX: usize = 2;
/// The longest soft file mark, in units of 512 bytes: SQL Server's largest block has 64 KiB.
const FILE_MARK_MAX: u64 = 128;

/// How much of a family is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The descriptions. Pages and log are left out.
    Descriptions,
    /// Every byte.
    Everything,
}

/// What a data or log stream holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Pages of the database (MQDA).
    Pages,
    /// Blocks of the log (MQTL).
    Log,
}

/// What is on the media.
#[derive(Debug)]
pub enum Event<'a> {
    /// The media header.
    Label(MediaLabel),
    /// A backup set begins.
    SetBegins(SetHeader),
    /// The machine that made it.
    Machine(String),
    /// The description of its database; `at_end` is the final one.
    Configuration {
        /// From MSLS, at the end of the set.
        at_end: bool,
        /// The description.
        configuration: Box<Configuration>,
    },
    /// A part of the log follows, or would follow if it were in use or in this family.
    LogRange(LogRange),
    /// A data or log stream begins. It is not given with [`Depth::Descriptions`], as are the next two.
    ContentBegins(Content),
    /// The next bytes of it: an extent of pages, or as much of the log. The last piece may be shorter.
    Piece {
        /// Pages or log.
        content: Content,
        /// Its offset in the family.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The stream ends.
    ContentEnds {
        /// Pages or log.
        content: Content,
        /// Its checksum, if the backup has one.
        checksum: Option<Checksum>,
    },
    /// The backup set ends.
    SetEnds,
}

/// The checksum of a data or log stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    /// The offset of the stream CSUM in the family.
    pub offset: u64,
    /// As the media have it.
    pub stored: u32,
    /// As the bytes give it.
    pub computed: u32,
}

/// The bytes of a family outside pages and log, by what they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Structure {
    /// Headers of blocks and of streams: each has a checksum.
    pub headers: u64,
    /// Descriptions: the rest of blocks, MQCI, RAID, the set map.
    pub descriptions: u64,
    /// Padding and file marks.
    pub padding: u64,
}

/// Walks over a family, and gives its events to `visit`.
///
/// # Errors
/// The family is damaged, is cut off, is not of SQL Server, or cannot be read; or an error of `visit`.
pub fn walk(input: &mut Input, depth: Depth, visit: &mut dyn FnMut(Event<'_>) -> Result<()>) -> Result<Structure> {
    let walk = Walk { input, depth, visit, structure: Structure::default(), file_mark: 1, labelled: false, set: None };
    walk.run()
}

/// What was seen of the set that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// No description yet.
    Nothing,
    /// The final description.
    Final,
    /// Only the first description.
    First,
}

struct Walk<'a> {
    input: &'a mut Input,
    depth: Depth,
    visit: &'a mut dyn FnMut(Event<'_>) -> Result<()>,
    structure: Structure,
    /// The length of a soft file mark, in units of 512 bytes.
    file_mark: u64,
    labelled: bool,
    /// The open set.
    set: Option<Seen>,
}

impl Walk<'_> {
    fn run(mut self) -> Result<Structure> {
        let (mut last, mut sets) = (None, 0_u64);
        loop {
            let start = self.input.at();
            let mut head = [0; BLOCK_HEADER];
            match self.input.read(&mut head)? {
                0 => break,
                BLOCK_HEADER => {}
                _ if last.is_none() => return Err(self.not_sql_server("it is shorter than a media header")),
                _ => return Err(self.input.ends("the header of a block")),
            }
            if last.is_none() && !head.starts_with(b"TAPE") {
                return Err(self.not_sql_server("it does not begin with TAPE"));
            }
            let header = BlockHeader::decode(&head).map_err(|wrong| self.input.wrong(start, wrong))?;
            sets += u64::from(header.kind == BlockKind::SetEnd && self.set.is_some());
            self.block(start, header, &head)?;
            last = Some(header.kind);
        }
        match (last, self.set) {
            (None, _) => Err(self.not_sql_server("it is empty")),
            (Some(BlockKind::FileMark | BlockKind::MediumEnd), None) if sets > 0 => Ok(self.structure),
            _ => Err(self.input.ends("a backup set")),
        }
    }

    /// One block with its streams.
    fn block(&mut self, start: u64, header: BlockHeader, head: &[u8; BLOCK_HEADER]) -> Result<()> {
        self.structure.headers += BLOCK_HEADER as u64;
        let length = match (header.kind, header.length) {
            (BlockKind::FileMark, 0) => self.file_mark * 512,
            (_, length) => length.into(),
        };
        let rest = self.input.bytes(length.saturating_sub(BLOCK_HEADER as u64), "a block")?;
        if header.kind == BlockKind::FileMark {
            self.structure.padding += rest.len() as u64;
            return Ok(());
        }
        self.structure.descriptions += rest.len() as u64;
        let block = [&head[..], &rest].concat();
        let tape = self.content_of(start, header, &block)?;
        self.streams(start, header.kind, tape)
    }

    /// Gives the event of a block, if it has one. Gives the media header back, which is complete with the stream RAID.
    fn content_of(&mut self, start: u64, header: BlockHeader, block: &[u8]) -> Result<Option<Tape>> {
        let wrong = |walk: &Self, wrong| walk.input.wrong(start, wrong);
        let in_set = self.set.is_some();
        match header.kind {
            BlockKind::Tape if self.labelled => {
                return Err(self.input.damaged(start, "a second media header is inside the media"));
            }
            BlockKind::Tape => {
                let tape = Tape::decode(block, header.strings).map_err(|e| wrong(self, e))?;
                self.file_mark = u64::from(tape.file_mark).clamp(1, FILE_MARK_MAX);
                return Ok(Some(tape));
            }
            BlockKind::SetStart if in_set => {
                return Err(self.input.damaged(start, "a backup set begins before the last one ends"));
            }
            BlockKind::SetStart => {
                let begun = SetHeader::decode(block, header.strings).map_err(|e| wrong(self, e))?;
                self.set = Some(Seen::Nothing);
                (self.visit)(Event::SetBegins(begun))?;
            }
            BlockKind::Volume if in_set => {
                let machine = set::machine(block, header.strings).map_err(|e| wrong(self, e))?;
                (self.visit)(Event::Machine(machine))?;
            }
            BlockKind::Log if in_set => {
                let range = LogRange::decode(block).map_err(|e| wrong(self, e))?;
                (self.visit)(Event::LogRange(range))?;
            }
            BlockKind::SetEnd => match self.set.take() {
                Some(Seen::Nothing) => {
                    return Err(self.input.damaged(start, "a backup set ends without a description of its database"));
                }
                Some(_) => (self.visit)(Event::SetEnds)?,
                // The second of two: the first one has the map of all sets.
                None => {}
            },
            BlockKind::Volume | BlockKind::Log | BlockKind::Data => {
                if !in_set {
                    return Err(self.input.damaged(start, "a part of a backup set is outside every backup set"));
                }
            }
            BlockKind::ConfigurationAtStart | BlockKind::ConfigurationAtEnd => {}
            BlockKind::FileMark | BlockKind::MediumEnd | BlockKind::Other => {}
        }
        Ok(None)
    }

    /// The streams of a block, up to SPAD.
    fn streams(&mut self, block: u64, kind: BlockKind, mut tape: Option<Tape>) -> Result<()> {
        loop {
            self.structure.padding += self.input.align()?;
            let (start, header) = self.stream_header()?;
            match &header.id {
                b"SPAD" => {
                    // Only bytes that are there are counted: a length from the media may be any number.
                    self.input.skip(header.length)?;
                    self.structure.padding += header.length;
                    return match tape {
                        Some(_) => Err(self.not_sql_server("its media header has no RAID stream")),
                        None => Ok(()),
                    };
                }
                b"RAID" if tape.is_some() => {
                    let stripe = self.stripe(start, header)?;
                    if let Some(tape) = tape.take() {
                        self.labelled = true;
                        (self.visit)(Event::Label(MediaLabel { tape, stripe }))?;
                    }
                }
                b"MQCI" => self.configuration(start, header, kind)?,
                b"MQDA" | b"MQTL" if self.set.is_none() => {
                    return Err(self.input.damaged(block, "pages or log are outside every backup set"));
                }
                b"MQDA" => self.content(start, header, Content::Pages)?,
                b"MQTL" => self.content(start, header, Content::Log)?,
                b"CSUM" => return Err(self.input.damaged(start, "a backup checksum follows no data")),
                other => {
                    self.input.skip(header.length)?;
                    let is_padding = matches!(other, b"APAD" | b"OTCP");
                    let part = if is_padding { &mut self.structure.padding } else { &mut self.structure.descriptions };
                    *part += header.length;
                }
            }
        }
    }

    fn stream_header(&mut self) -> Result<(u64, StreamHeader)> {
        let start = self.input.at();
        let mut bytes = [0; STREAM_HEADER];
        self.input.exact(&mut bytes, "the header of a stream")?;
        self.structure.headers += STREAM_HEADER as u64;
        Ok((start, StreamHeader::decode(&bytes).map_err(|wrong| self.input.wrong(start, wrong))?))
    }

    fn stripe(&mut self, start: u64, header: StreamHeader) -> Result<Stripe> {
        let mut bytes = [0; Stripe::SIZE];
        if header.length < bytes.len() as u64 {
            return Err(self.input.damaged(start, "the stream RAID is too short"));
        }
        self.input.exact(&mut bytes, "the stream RAID")?;
        self.input.skip(header.length - bytes.len() as u64)?;
        self.structure.descriptions += header.length;
        Stripe::decode(&bytes).map_err(|wrong| self.input.wrong(start + STREAM_HEADER as u64, wrong))
    }

    fn configuration(&mut self, start: u64, header: StreamHeader, kind: BlockKind) -> Result<()> {
        if self.set.is_none() {
            return Err(self.input.damaged(start, "a description of a database is outside every backup set"));
        }
        if header.length > CONFIGURATION_MAX {
            return Err(self.input.damaged(start, "the description of the database is longer than any can be"));
        }
        let bytes = self.input.bytes(header.length, "the description of the database")?;
        self.structure.descriptions += header.length;
        let first = start + STREAM_HEADER as u64;
        let configuration = Configuration::decode(&bytes).map_err(|wrong| self.input.wrong(first, wrong))?;
        let at_end = kind == BlockKind::ConfigurationAtEnd;
        self.set = Some(if at_end { Seen::Final } else { Seen::First });
        (self.visit)(Event::Configuration { at_end, configuration: Box::new(configuration) })
    }

    /// A data or log stream, and its checksum.
    fn content(&mut self, start: u64, header: StreamHeader, content: Content) -> Result<()> {
        if header.is_encoded {
            let why = "is compressed or encrypted by a method of MTF that SQL Server does not use";
            return Err(Error::refused(format!("`{}`", self.input.device()), why, "restore it with its own program"));
        }
        // An empty stream ends a series of them, and has no prefix.
        let Some(mut left) = header.length.checked_sub(CONTENT_PREFIX as u64) else {
            self.structure.padding += header.length;
            self.input.skip(header.length)?;
            return if header.has_checksum() { self.checksum(start, 0).map(drop) } else { Ok(()) };
        };
        self.structure.padding += CONTENT_PREFIX as u64;
        let mut sum = BackupChecksum::default();
        let everything = self.depth == Depth::Everything;
        if everything {
            self.input.skip(CONTENT_PREFIX as u64)?;
            (self.visit)(Event::ContentBegins(content))?;
            let mut piece = vec![0; EXTENT];
            while left > 0 {
                let offset = self.input.at();
                let length = usize::try_from(left).map_or(EXTENT, |left| left.min(EXTENT));
                let shared = self.input.share(length)?;
                let bytes = match &shared {
                    Some(shared) => &shared[..],
                    None => {
                        let bytes = piece.get_mut(..length).unwrap_or_default();
                        self.input.exact(bytes, "pages or log")?;
                        bytes
                    }
                };
                // Without a stored checksum, nothing would be compared with it.
                if header.has_checksum() {
                    sum.add(bytes);
                }
                (self.visit)(Event::Piece { content, offset, bytes })?;
                left -= length as u64;
            }
        } else {
            self.input.skip(header.length)?;
        }
        let checksum = if header.has_checksum() { Some(self.checksum(start, sum.value())?) } else { None };
        if everything { (self.visit)(Event::ContentEnds { content, checksum }) } else { Ok(()) }
    }

    /// The stream CSUM behind the stream at `of`.
    fn checksum(&mut self, of: u64, computed: u32) -> Result<Checksum> {
        self.structure.padding += self.input.align()?;
        let (offset, header) = self.stream_header()?;
        if header.id != *b"CSUM" || header.length < 4 {
            return Err(self.input.damaged(of, "a stream says that its checksum follows, but it does not"));
        }
        let mut bytes = [0; 4];
        self.input.exact(&mut bytes, "a backup checksum")?;
        self.input.skip(header.length - 4)?;
        self.structure.descriptions += header.length;
        let stored = Fields(&bytes).u32(0).map_err(|wrong| self.input.wrong(offset, wrong))?;
        Ok(Checksum { offset, stored, computed })
    }

    fn not_sql_server(&self, why: &str) -> Error {
        let what = format!("is not a backup of SQL Server: {why}");
        Error::incomplete(format!("`{}`", self.input.device()), what, "name a file that BACKUP has written")
    }
}
