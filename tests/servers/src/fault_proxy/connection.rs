//! One connection of a client: its requests, one after the other, each with its fault.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::fault::{At, Fault, Request, Which};
use super::http::{Framing, Head, Piece, each_piece};
use super::state::State;

/// What is held in memory to be sent twice; a larger request or answer resets the connection.
const HELD_BYTES: usize = 256 * 1024 * 1024;
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A socket that the end of the proxy can shut down while it is read here.
#[derive(Clone)]
pub(super) struct Socket(pub Arc<TcpStream>);

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self.0).write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a request ended for the connection.
enum Next {
    /// The next request may come.
    Open,
    /// Closed in an orderly way.
    Close,
    /// Closed with a reset.
    Reset,
}

/// Which of an answer's bytes the client gets, and how.
#[derive(Clone, Copy)]
enum Passing {
    Whole,
    Half,
    Flipped(u64),
}

pub(super) struct Connection<'a> {
    state: &'a State,
    client: BufReader<Socket>,
    store: Option<BufReader<Socket>>,
}

impl<'a> Connection<'a> {
    pub(super) fn new(state: &'a State, client: Socket) -> Self {
        Self { state, client: BufReader::new(client), store: None }
    }

    /// Serves the connection until it ends, for whatever reason.
    pub(super) fn serve(mut self) {
        let reset = loop {
            match self.one() {
                Ok(Some(Next::Open)) => {}
                Ok(Some(Next::Close) | None) => break false,
                // The store is not there, or one of the two has gone: what the client would see without the proxy.
                Ok(Some(Next::Reset)) | Err(_) => break true,
            }
        };
        if reset || self.state.stopped() {
            let client = &self.client.get_ref().0;
            // What is not sent yet is thrown away, and the client told so. It may be gone already.
            let _ = rustix::net::sockopt::set_socket_linger(client, Some(Duration::ZERO));
        }
    }

    fn one(&mut self) -> io::Result<Option<Next>> {
        let Some(head) = Head::read(&mut self.client)? else { return Ok(None) };
        let framing = head.request_framing()?;
        let request = self.state.arrived(&head);
        let fault = self.state.decide(&request);
        let next = match fault {
            Fault::Pass => self.pass(&request, &head, framing, Passing::Whole),
            Fault::Delay(time) => {
                self.state.wait(time);
                self.pass(&request, &head, framing, Passing::Whole)
            }
            Fault::Reset(at) => self.until(at, &request, &head, framing).map(|()| Next::Reset),
            Fault::Stall(at) => {
                self.until(at, &request, &head, framing)?;
                self.hold();
                Ok(Next::Close)
            }
            Fault::Error { status, code, retry_after, done } => {
                if done {
                    self.forward(&head, framing, None)?;
                    self.answer(&request, &mut |_| Ok(true))?;
                } else {
                    self.ignore(&head, framing)?;
                }
                self.refuse(&request, status, code, retry_after)?;
                Ok(if head.closes() { Next::Close } else { Next::Open })
            }
            Fault::Redirect { status, to } => {
                self.ignore(&head, framing)?;
                let Request { path, query, .. } = &request;
                let more = format!("Location: {to}{path}?{query}\r\nx-amz-bucket-region: elsewhere-7\r\n");
                self.tell(&request, status, &more, "")?;
                Ok(if head.closes() { Next::Close } else { Next::Open })
            }
            Fault::Answer { body } => {
                self.ignore(&head, framing)?;
                self.tell(&request, 200, "Content-Type: application/xml\r\n", body)?;
                Ok(if head.closes() { Next::Close } else { Next::Open })
            }
            Fault::Flood { status } => {
                self.ignore(&head, framing)?;
                self.flood(&request, status)
            }
            Fault::Truncate => self.pass(&request, &head, framing, Passing::Half).map(|_| Next::Close),
            Fault::Duplicate(which) => self.twice(which, &request, &head, framing),
            Fault::FlipAnswer(at) => self.pass(&request, &head, framing, Passing::Flipped(at)),
            Fault::FlipRequest(at) => {
                self.forward(&head, framing, Some(at))?;
                self.give_answer(&request, &head, Passing::Whole)
            }
        };
        next.map(Some)
    }

    fn pass(&mut self, request: &Request, head: &Head, framing: Framing, passing: Passing) -> io::Result<Next> {
        self.forward(head, framing, None)?;
        self.give_answer(request, head, passing)
    }

    /// Goes on up to the point where a reset or a stall is to be.
    fn until(&mut self, at: At, request: &Request, head: &Head, framing: Framing) -> io::Result<()> {
        match at {
            At::Start => {}
            At::Request => self.forward_half(head, framing)?,
            At::Answer => {
                self.forward(head, framing, None)?;
                self.answer(request, &mut |_| Ok(true))?;
            }
            At::Body => {
                self.forward(head, framing, None)?;
                self.give_answer(request, head, Passing::Half)?;
            }
        }
        Ok(())
    }

    // -- towards the store ----------------------------------------------------------------------------------------

    /// A connection to the store: the one that is there, if nothing has come on it and it was not closed.
    fn store(&mut self) -> io::Result<&mut BufReader<Socket>> {
        let usable = self.store.take().filter(|store| {
            let mut look = [PollFd::new(&*store.get_ref().0, PollFlags::IN | PollFlags::RDHUP)];
            store.buffer().is_empty() && matches!(poll(&mut look, Some(&Timespec::default())), Ok(0))
        });
        let store = match usable {
            Some(store) => store,
            None => BufReader::new(self.state.connect()?),
        };
        Ok(self.store.insert(store))
    }

    /// Tells a client that waits for it to send the body.
    fn invite(&mut self, head: &Head) -> io::Result<()> {
        if head.waits_for_invitation() {
            self.client.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        Ok(())
    }

    /// Takes a request of which the store hears nothing.
    fn ignore(&mut self, head: &Head, framing: Framing) -> io::Result<()> {
        self.invite(head)?;
        let state = self.state;
        each_piece(&mut self.client, framing, &mut |_| Ok(!state.stopped()))?;
        Ok(())
    }

    fn forward(&mut self, head: &Head, framing: Framing, flip: Option<u64>) -> io::Result<()> {
        self.invite(head)?;
        let (state, mut store) = (self.state, self.store()?.get_ref().clone());
        store.write_all(&head.without("expect"))?;
        let (mut at, mut flips, mut refused) = (0, flip.map(|byte| position(byte, framing)), false);
        each_piece(&mut self.client, framing, &mut |piece| {
            // A store that refuses a request may close before it has all of it: the answer is there to be read.
            refused = refused || send(&mut store, piece, &mut at, &mut flips).is_err();
            Ok(!state.stopped())
        })?;
        Ok(())
    }

    /// Half of the body, or without one half of the head; then the store's connection is over.
    fn forward_half(&mut self, head: &Head, framing: Framing) -> io::Result<()> {
        self.invite(head)?;
        let mut store = self.store()?.get_ref().clone();
        let whole = head.without("expect");
        if framing == Framing::None {
            store.write_all(&whole[..whole.len() / 2])?;
        } else {
            store.write_all(&whole)?;
            send_half(&mut self.client, framing, &mut store)?;
        }
        self.store = None;
        Ok(())
    }

    fn twice(&mut self, which: Which, request: &Request, head: &Head, framing: Framing) -> io::Result<Next> {
        self.invite(head)?;
        let mut held = head.without("expect");
        each_piece(&mut self.client, framing, &mut |piece| hold(&mut held, piece.bytes()))?;
        self.send_held(&held)?;
        let mut first = Vec::new();
        let closes = self.answer(request, &mut |part| hold(&mut first, part))?;
        self.send_held(&held)?;
        if which == Which::Second {
            return self.give_answer(request, head, Passing::Whole);
        }
        // The first answer is the one that the client gets, so its status is the one in the record.
        let status = Head::read(&mut &first[..])?.map_or(0, |head| head.status());
        self.answer(request, &mut |_| Ok(true))?;
        self.state.answered(request.number, Some(status), Some(status));
        self.client.get_mut().write_all(&first)?;
        Ok(if closes || head.closes() { Next::Close } else { Next::Open })
    }

    fn send_held(&mut self, request: &[u8]) -> io::Result<()> {
        // As in `forward`: who refuses it may have answered before all of it was sent.
        let _ = self.store()?.get_mut().write_all(request);
        Ok(())
    }

    // -- towards the client ---------------------------------------------------------------------------------------

    /// The head of the store's answer.
    fn answer_head(&mut self, request: &Request) -> io::Result<(Head, Framing)> {
        let store = self.store.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            let head = Head::read(store)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            // `100 Continue` was the proxy's to say.
            if !(100..200).contains(&head.status()) {
                self.state.answered(request.number, Some(head.status()), None);
                let framing = head.answer_framing(&request.method)?;
                return Ok((head, framing));
            }
        }
    }

    /// Reads the whole answer of the store into `take`; whether it was the last on its connection.
    fn answer(&mut self, request: &Request, take: &mut dyn FnMut(&[u8]) -> io::Result<bool>) -> io::Result<bool> {
        let (head, framing) = self.answer_head(request)?;
        take(&head.raw)?;
        let store = self.store.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        each_piece(store, framing, &mut |piece| take(piece.bytes()))?;
        let last = framing == Framing::UntilClose || head.closes();
        if last {
            self.store = None;
        }
        Ok(last)
    }

    fn give_answer(&mut self, request: &Request, asked: &Head, passing: Passing) -> io::Result<Next> {
        let (head, framing) = self.answer_head(request)?;
        // Before the client hears it: who has its answer finds it in the record.
        self.state.answered(request.number, None, Some(head.status()));
        let mut client = self.client.get_ref().clone();
        let store = self.store.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        match passing {
            Passing::Half if framing == Framing::None => client.write_all(&head.raw[..head.raw.len() / 2])?,
            Passing::Half => {
                client.write_all(&head.raw)?;
                send_half(store, framing, &mut client)?;
            }
            Passing::Whole | Passing::Flipped(_) => {
                let (state, number) = (self.state, request.number);
                state.giving(number, head.raw.len());
                client.write_all(&head.raw)?;
                let mut flips = match passing {
                    Passing::Flipped(byte) => Some(position(byte, framing)),
                    _ => None,
                };
                let mut at = 0;
                each_piece(store, framing, &mut |piece| {
                    state.giving(number, piece.bytes().len());
                    send(&mut client, piece, &mut at, &mut flips)?;
                    Ok(true)
                })?;
            }
        }
        let last = framing == Framing::UntilClose || head.closes();
        if last || matches!(passing, Passing::Half) {
            self.store = None;
        }
        Ok(if last || asked.closes() { Next::Close } else { Next::Open })
    }

    /// An answer that is not the store's, with more headers.
    fn tell(&mut self, request: &Request, status: u16, headers: &str, body: &str) -> io::Result<()> {
        self.state.answered(request.number, None, Some(status));
        let answer = format!("HTTP/1.1 {status} Told\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
        self.client.get_mut().write_all(answer.as_bytes())
    }

    /// An error that is not the store's.
    fn refuse(&mut self, request: &Request, status: u16, code: &str, retry_after: Option<u32>) -> io::Result<()> {
        let Request { number, method, path, .. } = request;
        let retry = retry_after.map_or(String::new(), |seconds| format!("Retry-After: {seconds}\r\n"));
        let message = "The fault proxy says so.";
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
             <Resource>{path}</Resource><RequestId>FAULT{number}</RequestId></Error>"
        );
        let head = format!(
            "HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\
             x-amz-request-id: FAULT{number}\r\n{retry}\r\n",
            body.len()
        );
        self.state.answered(*number, None, Some(status));
        let body = if method == "HEAD" { "" } else { &body };
        self.client.get_mut().write_all(format!("{head}{body}").as_bytes())
    }

    /// An answer without an end, until the client goes away; how much of it was sent is in the record.
    fn flood(&mut self, request: &Request, status: u16) -> io::Result<Next> {
        self.state.answered(request.number, None, Some(status));
        let mut client = self.client.get_ref().clone();
        client
            .write_all(format!("HTTP/1.1 {status} Flood\r\nContent-Type: application/xml\r\n\r\n<Error>").as_bytes())?;
        let piece = [b'x'; 64 * 1024];
        while !self.state.stopped() {
            self.state.giving(request.number, piece.len());
            client.write_all(&piece)?;
        }
        Ok(Next::Close)
    }

    /// Leaves everything as it is until the client goes away or the proxy ends.
    fn hold(&self) {
        let client = &*self.client.get_ref().0;
        while !self.state.stopped() {
            // Not by reading: what the client still sends has to stay where it is.
            let mut look = [PollFd::new(client, PollFlags::RDHUP)];
            if !matches!(poll(&mut look, Some(&LOOK)), Ok(0)) {
                return;
            }
        }
    }
}

/// Which byte is meant, if the length is known.
fn position(byte: u64, framing: Framing) -> u64 {
    if let Framing::Length(length) = framing { byte % length } else { byte }
}

/// Sends a piece, with one bit of the byte number `flips` wrong if it lies in it: `at` counts the data.
fn send(to: &mut Socket, piece: Piece<'_>, at: &mut u64, flips: &mut Option<u64>) -> io::Result<()> {
    match piece {
        Piece::Frame(bytes) => to.write_all(bytes),
        Piece::Data(bytes) => {
            let place = flips.and_then(|byte| byte.checked_sub(*at)).and_then(|offset| usize::try_from(offset).ok());
            if let Some(byte) = place.and_then(|offset| bytes.get_mut(offset)) {
                *byte ^= 0x10;
                *flips = None;
            }
            *at += bytes.len() as u64;
            to.write_all(bytes)
        }
    }
}

/// Half of a body of known length; otherwise half of its first piece.
fn send_half(from: &mut impl BufRead, framing: Framing, to: &mut Socket) -> io::Result<()> {
    let mut left = if let Framing::Length(length) = framing { usize::try_from(length / 2).ok() } else { None };
    each_piece(from, framing, &mut |piece| match piece {
        Piece::Frame(bytes) => to.write_all(bytes).map(|()| true),
        Piece::Data(bytes) => {
            let most = *left.get_or_insert(bytes.len() / 2);
            to.write_all(&bytes[..most.min(bytes.len())])?;
            left = Some(most.saturating_sub(bytes.len()));
            Ok(left != Some(0))
        }
    })?;
    Ok(())
}

fn hold(held: &mut Vec<u8>, bytes: &[u8]) -> io::Result<bool> {
    if held.len() + bytes.len() > HELD_BYTES {
        return Err(io::Error::other("too long to be held"));
    }
    held.extend_from_slice(bytes);
    Ok(true)
}
