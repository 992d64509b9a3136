//! One connection of a clone that carries data: the first of them leads, the others are workers.
//!
//! The thread that stores events asks its task for them. The call for the next event means that the last event is
//! stored or passed on: the barriers of [`super::progress`] rely on it.

use std::sync::Arc;
use std::time::Duration;

use fullbore_core::{Error, Result};

use super::descriptor::{BadMessage, DataDescriptor, Descriptor, FileDescriptor, Stage, StateDescriptor, StateKind};
use super::donor::{Conversation, bad, parse, receive_complete};
use super::files::{Change, FileId};
use super::message::{self, RAW_DATA, RESPONSE_MAX, Response, command};
use super::progress::PieceOrigin;
use crate::mysql_family::connection::{Connection, Message};

/// The server's message to a task when another task of the same clone has failed (error 1815).
const FAILED_ELSEWHERE: &str = "Clone error in concurrent task";
/// How long to wait for the reason from the other task.
const CAUSE_PATIENCE: Duration = Duration::from_secs(5);

/// The buffer for skipped bytes.
const SKIP: usize = 64 << 10;

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataExtent {
    /// Its layer: bytes of a later stage replace the bytes of an earlier stage.
    pub stage: Stage,
    /// The file.
    pub file: FileId,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Length in bytes; may be 0.
    pub length: u32,
}

/// An event of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A stage begins. Only from the first task.
    StageBegins(StateDescriptor),
    /// A file, or a change of it. Only from the first task; before any data of that file.
    File(Change),
    /// Bytes of a file: to be read with [`Task::read`].
    Data(DataExtent),
    /// All tasks have everything of the stage; it is acknowledged when the next event is asked for. Only from the first
    /// task.
    StageEnds(Stage),
}

/// The step to publish or send at the call for the next event.
enum AtNext {
    Nothing,
    Begin(Stage),
    Commit(Change),
    Acknowledge(StateDescriptor),
}

/// A connection that carries data.
pub struct Task {
    number: usize,
    connection: Option<Connection>,
    conversation: Arc<Conversation>,
    executing: bool,
    ended: bool,
    at_next: AtNext,
    /// The message that holds the bytes of the last data event, and how many of them are left.
    data: Option<(Message, u32)>,
}

/// A received message that is not handled at once.
enum Received {
    Response(Response),
    Data,
}

impl Task {
    pub(super) fn new(number: usize, connection: Connection, conversation: Arc<Conversation>) -> Self {
        let connection = Some(connection);
        let at_next = AtNext::Nothing;
        Self { number, connection, conversation, executing: false, ended: false, at_next, data: None }
    }

    /// Its number; the first is 0.
    pub fn number(&self) -> usize {
        self.number
    }

    fn leads(&self) -> bool {
        self.number == 0
    }

    /// The next event; `None` at the end and after an error.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        if self.ended {
            return Ok(None);
        }
        self.advance().map_err(|error| self.cause_of(error)).inspect_err(|_| {
            // Tell the donor before the connection closes: it would wait for a new connection.
            self.conversation.give_up();
            self.close();
        })
    }

    /// If the server says only that another of its tasks has failed, waits for the reason from the other task: that
    /// error counts.
    fn cause_of(&self, error: Error) -> Error {
        let elsewhere = error.to_string().contains(FAILED_ELSEWHERE);
        if elsewhere && self.conversation.progress.fails_within(CAUSE_PATIENCE) { Error::Halted } else { error }
    }

    /// Reads bytes of the last data event into the start of `buffer`; 0 when all are read.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let Some((message, left)) = &mut self.data else { return Ok(0) };
        let length = buffer.len().min(*left as usize);
        let connection = self.connection.as_mut().ok_or(Error::Halted)?;
        if let Err(error) = connection.read_exact(message, &mut buffer[..length]) {
            self.conversation.give_up();
            self.close();
            return Err(error);
        }
        *left -= length as u32;
        Ok(length)
    }

    fn advance(&mut self) -> Result<Option<Event>> {
        self.pass_over_data()?;
        match std::mem::replace(&mut self.at_next, AtNext::Nothing) {
            AtNext::Nothing => {}
            AtNext::Begin(stage) => self.conversation.progress.begin(stage),
            AtNext::Commit(change) => self.conversation.progress.commit(&change),
            AtNext::Acknowledge(state) => self.conversation.acknowledge(&state)?,
        }
        if !self.executing && !self.execute()? {
            return Ok(None);
        }
        loop {
            let event = match self.receive()? {
                Received::Data => return Err(self.bad("data that no descriptor announced")),
                Received::Response(Response::Descriptor(descriptor)) => self.take_in(descriptor)?,
                Received::Response(Response::Complete) => return self.finish().map(|()| None),
                Received::Response(Response::Unknown(_)) => None,
                Received::Response(_) => return Err(self.bad("a message that does not belong here")),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Asks for data; a worker attaches itself before. False if it comes too late to get any.
    fn execute(&mut self) -> Result<bool> {
        if !self.leads() {
            // Before the end of INIT is acknowledged the donor would not answer.
            self.conversation.progress.wait_until_attachable()?;
            // Before it attaches: so the stage that runs cannot end, and the clone with it, until this worker is in.
            if !self.conversation.progress.join(self.number) {
                self.finish()?;
                return Ok(false);
            }
            let body = message::begin(self.conversation.ddl, self.conversation.locators());
            let connection = self.connection.as_mut().ok_or(Error::Halted)?;
            connection.send(command::ATTACH, &body)?;
            receive_complete(connection)?;
        }
        self.connection.as_mut().ok_or(Error::Halted)?.send(command::EXECUTE, &[])?;
        self.executing = true;
        Ok(true)
    }

    fn receive(&mut self) -> Result<Received> {
        let connection = self.connection.as_mut().ok_or(Error::Halted)?;
        let mut message = connection.begin()?;
        let mut payload = [0];
        connection.read_exact(&mut message, &mut payload)?;
        if payload[0] == RAW_DATA {
            self.data = Some((message, 0));
            return Ok(Received::Data);
        }
        let mut whole = payload.to_vec();
        whole.extend(connection.rest(message, RESPONSE_MAX)?);
        Ok(Received::Response(parse(connection, &whole)?))
    }

    fn take_in(&mut self, descriptor: Descriptor) -> Result<Option<Event>> {
        match descriptor {
            Descriptor::Task(_) => Ok(None),
            Descriptor::State(state) => self.state(state),
            // Workers receive files too; the first task knows all of them.
            Descriptor::File(_) if !self.leads() => Ok(None),
            Descriptor::File(file) => self.file(&file),
            Descriptor::Data(data) => self.data(&data),
        }
    }

    fn state(&mut self, state: StateDescriptor) -> Result<Option<Event>> {
        let progress = &self.conversation.progress;
        match (state.kind(), self.leads()) {
            (StateKind::KeepAlive, _) => Ok(None),
            (StateKind::Start, true) => {
                if progress.stage().next() != Some(state.stage) {
                    return Err(self.bad("a stage out of order"));
                }
                self.at_next = AtNext::Begin(state.stage);
                Ok(Some(Event::StageBegins(state)))
            }
            (StateKind::End, true) => {
                if progress.stage() != state.stage {
                    return Err(self.bad("the end of a stage that does not run"));
                }
                if state.stage == Stage::Init {
                    self.conversation.acknowledge(&state)?;
                    progress.allow_workers();
                    return Ok(None);
                }
                progress.end(state.stage)?;
                let event = Event::StageEnds(state.stage);
                self.at_next = AtNext::Acknowledge(state);
                Ok(Some(event))
            }
            (StateKind::Start, false) => progress.wait_for_stage(state.stage).map(|()| None),
            (StateKind::End, false) => {
                progress.worker_ends(self.number, state.stage);
                Ok(None)
            }
        }
    }

    fn file(&mut self, descriptor: &FileDescriptor) -> Result<Option<Event>> {
        let progress = &self.conversation.progress;
        let current = progress.stage();
        let planned = progress.with_files(|files| files.plan(descriptor, current));
        let change = planned.map_err(|BadMessage(what)| self.bad(what))?;
        Ok(change.map(|change| {
            self.at_next = AtNext::Commit(change.clone());
            Event::File(change)
        }))
    }

    fn data(&mut self, data: &DataDescriptor) -> Result<Option<Event>> {
        let progress = &self.conversation.progress;
        if self.leads() && data.stage != progress.stage() {
            return Err(self.bad("data of a stage that does not run"));
        }
        progress.wait_for_stage(data.stage)?;
        let id = if data.stage == Stage::RedoCopy { FileId::Redo(data.file) } else { FileId::Data(data.file) };
        let known = match self.leads() {
            // No other task can announce the file.
            true => progress.with_files(|files| match files.get(id) {
                Some(file) if file.deleted => PieceOrigin::Gone,
                Some(file) => PieceOrigin::File(file.clone()),
                None => PieceOrigin::Never,
            }),
            false => progress.file(id, data.stage)?,
        };
        let gone = match known {
            PieceOrigin::Never => return Err(self.bad("data of a file that it did not announce")),
            PieceOrigin::Gone => true,
            PieceOrigin::File(file) => {
                let end = data.offset + u64::from(data.length);
                // Page 0 of a file has its size. Another task may receive it later than this task receives the last
                // pages.
                let grows = data.stage == Stage::PageCopy;
                if end > file.size.max(data.file_size) && !grows {
                    return Err(self.bad("data after the end of its file"));
                }
                progress
                    .with_files(|files| files.grow(id, if grows { data.file_size.max(end) } else { data.file_size }));
                false
            }
        };
        match self.receive()? {
            Received::Data => {}
            Received::Response(_) => return Err(self.bad("a descriptor of data without the data")),
        }
        if let Some((_, left)) = &mut self.data {
            *left = data.length;
        }
        if gone {
            self.pass_over_data()?;
            return Ok(None);
        }
        let DataDescriptor { stage, offset, length, .. } = *data;
        Ok(Some(Event::Data(DataExtent { stage, file: id, offset, length })))
    }

    /// Reads the rest of the last data event, and checks that its message ends there.
    fn pass_over_data(&mut self) -> Result<()> {
        let mut skipped = Vec::new();
        while let Some((_, left)) = &self.data
            && *left > 0
        {
            skipped.resize(SKIP, 0);
            self.read(&mut skipped)?;
        }
        match (self.data.take(), &mut self.connection) {
            (Some((message, _)), Some(connection)) => connection.end(message),
            _ => Ok(()),
        }
    }

    /// Everything is here: takes leave. The first task ends the clone, after the workers.
    fn finish(&mut self) -> Result<()> {
        if self.leads() && self.conversation.progress.stage() != Stage::Done {
            return Err(self.bad("the end before everything was sent"));
        }
        if self.leads() {
            self.conversation.progress.wait_for_workers()?;
        }
        if let Some(connection) = &mut self.connection {
            connection.send(command::EXIT, &[])?;
            receive_complete(connection)?;
        }
        if !self.conversation.progress.leave(self.number) {
            return Err(self.bad("the end before everything was sent"));
        }
        if self.leads() {
            self.conversation.finish()?;
        }
        if let Some(connection) = self.connection.take() {
            connection.quit();
        }
        self.ended = true;
        Ok(())
    }

    fn bad(&self, what: &str) -> Error {
        match &self.connection {
            Some(connection) => bad(connection, what),
            None => Error::Halted,
        }
    }

    fn close(&mut self) {
        self.ended = true;
        self.data = None;
        self.connection = None;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.ended {
            self.conversation.give_up();
        }
    }
}
