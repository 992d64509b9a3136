//! A simple encoder of XPRESS Huffman blocks, for tests: MS-XCA, section 2.1.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{BLOCK_MAX, END, FIRST_MATCH, LEAST_MATCH, LONG, SYMBOLS, TABLE};

/// Bits of the longest code.
const LONGEST: u8 = 15;
/// Places of the table that finds earlier bytes.
const PLACES: usize = 1 << 14;
/// No place yet.
const NOWHERE: usize = usize::MAX;

/// A byte, or a repetition of earlier bytes.
enum Token {
    Literal(u8),
    Match { length: usize, distance: usize },
}

impl Token {
    fn symbol(&self) -> u16 {
        match *self {
            Self::Literal(byte) => byte.into(),
            Self::Match { length, distance } => {
                FIRST_MATCH + distance.ilog2() as u16 * 16 + (length - LEAST_MATCH).min(LONG) as u16
            }
        }
    }
}

/// Packs at most 65,536 bytes into a block.
///
/// # Panics
/// There are more bytes.
pub fn compress(plain: &[u8]) -> Vec<u8> {
    assert!(plain.len() <= BLOCK_MAX, "a block has at most 65536 bytes");
    let tokens = tokens(plain);
    let mut weights = [0_u32; SYMBOLS];
    tokens.iter().for_each(|token| weights[usize::from(token.symbol())] += 1);
    weights[usize::from(END)] += 1;
    // A complete code has at least two symbols.
    weights[0] += u32::from(plain.is_empty());
    let lengths = code_lengths(weights);
    let codes = codes(&lengths);
    let table = lengths.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4);
    let mut words = Words::new(table.collect());
    for token in &tokens {
        let symbol = usize::from(token.symbol());
        words.put(codes[symbol], lengths[symbol].into());
        if let Token::Match { length, distance } = *token {
            words.long_length(length - LEAST_MATCH);
            let bits = distance.ilog2();
            words.put(distance as u32 - (1 << bits), bits);
        }
    }
    words.put(codes[usize::from(END)], lengths[usize::from(END)].into());
    words.finish()
}

fn tokens(plain: &[u8]) -> Vec<Token> {
    let mut earlier = vec![NOWHERE; PLACES];
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < plain.len() {
        let found = seen_before(plain, at, &mut earlier).map(|from| (at - from, common(plain, from, at)));
        match found.filter(|&(_, length)| length >= LEAST_MATCH) {
            Some((distance, length)) => {
                tokens.push(Token::Match { length, distance });
                (at + 1..at + length).for_each(|inside| {
                    seen_before(plain, inside, &mut earlier);
                });
                at += length;
            }
            None => {
                tokens.push(Token::Literal(plain[at]));
                at += 1;
            }
        }
    }
    tokens
}

/// The last place that had the same hash of three bytes as `at`, which takes its place.
fn seen_before(plain: &[u8], at: usize, earlier: &mut [usize]) -> Option<usize> {
    let [a, b, c] = *plain.get(at..)?.first_chunk()?;
    let hash = u32::from_le_bytes([a, b, c, 0]).wrapping_mul(2_654_435_761) >> (32 - PLACES.ilog2());
    let last = std::mem::replace(&mut earlier[hash as usize], at);
    // The greatest distance has 16 bits.
    (last != NOWHERE && at - last < BLOCK_MAX).then_some(last)
}

fn common(plain: &[u8], from: usize, at: usize) -> usize {
    plain[from..].iter().zip(&plain[at..]).take_while(|(a, b)| a == b).count()
}

/// Code lengths of a Huffman code. Where a code would be too long, flatter weights make it shorter.
fn code_lengths(mut weights: [u32; SYMBOLS]) -> [u8; SYMBOLS] {
    loop {
        let lengths = huffman(&weights);
        if lengths.iter().all(|&length| length <= LONGEST) {
            return lengths;
        }
        weights.iter_mut().filter(|weight| **weight > 0).for_each(|weight| *weight = *weight / 2 + 1);
    }
}

fn huffman(weights: &[u32; SYMBOLS]) -> [u8; SYMBOLS] {
    let leaves = (0..SYMBOLS).filter(|&symbol| weights[symbol] > 0);
    let mut heap: BinaryHeap<_> = leaves.map(|symbol| Reverse((weights[symbol], symbol))).collect();
    let mut parents = vec![0; SYMBOLS];
    while let (Some(Reverse(least)), Some(Reverse(next))) = (heap.pop(), heap.pop()) {
        let parent = parents.len();
        parents.push(0);
        (parents[least.1], parents[next.1]) = (parent, parent);
        heap.push(Reverse((least.0 + next.0, parent)));
        if heap.len() == 1 {
            break;
        }
    }
    let depth = |symbol: usize| {
        let up = std::iter::successors(Some(symbol), |&node| Some(parents[node]).filter(|&parent| parent > 0));
        up.count().saturating_sub(1).min(usize::from(u8::MAX)) as u8
    };
    std::array::from_fn(depth)
}

fn codes(lengths: &[u8; SYMBOLS]) -> [u32; SYMBOLS] {
    let (mut codes, mut code) = ([0; SYMBOLS], 0);
    for length in 1..=LONGEST {
        for symbol in (0..SYMBOLS).filter(|&symbol| lengths[symbol] == length) {
            codes[symbol] = code;
            code += 1;
        }
        code <<= 1;
    }
    codes
}

/// The words of a block. Two places are kept for words, because a decoder reads two words ahead (2.1.4.3).
struct Words {
    block: Vec<u8>,
    places: [usize; 2],
    word: u32,
    free: u32,
}

impl Words {
    fn new(table: Vec<u8>) -> Self {
        let mut block = table;
        block.extend([0; 4]);
        Self { block, places: [TABLE, TABLE + 2], word: 0, free: 16 }
    }

    fn put(&mut self, bits: u32, count: u32) {
        if count <= self.free {
            self.free -= count;
            self.word = self.word << count | bits;
            return;
        }
        let over = count - self.free;
        self.write(self.word << self.free | bits >> over);
        self.places = [self.places[1], self.block.len()];
        self.block.extend([0; 2]);
        self.free = 16 - over;
        self.word = bits & ((1 << over) - 1);
    }

    /// The bytes of a length that its symbol cannot tell.
    fn long_length(&mut self, length: usize) {
        match length {
            0..LONG => {}
            LONG..270 => self.block.push((length - LONG) as u8),
            // 65,535 bytes are the greatest length of a match in a block.
            _ => {
                self.block.push(u8::MAX);
                self.block.extend((length as u16).to_le_bytes());
            }
        }
    }

    fn write(&mut self, word: u32) {
        let place = self.places[0];
        self.block[place..place + 2].copy_from_slice(&(word as u16).to_le_bytes());
    }

    fn finish(mut self) -> Vec<u8> {
        self.write(self.word << self.free);
        self.block
    }
}
