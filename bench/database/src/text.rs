//! Text that looks and compresses like text: a vocabulary with Zipf's distribution, names, places, JSON, time stamps.

use std::fmt::Write;

use fastrand::Rng;

/// The commonest words, as in any English corpus, and of a shop's own correspondence.
const COMMON: &str = "the of and to in a is that for it as was with be by on not he his but at are this have from or \
    had an they which one you were all her she there would their we him been has when who will no more if out so up \
    said what its about than into them can only other time new some could these two may first then do any like my now \
    over such our man me even most made after also did many off before must well back through years much where your way \
    down should because long each just state those people too mr how little good world make very year still see own \
    work men day get here between both life being under three never know same last another while us might great go come \
    since against right came take used himself few house american use place during high without again home around small \
    however found order delivery invoice customer payment account return parcel address received please thank regards \
    product warranty replacement shipped damaged refund request support ticket attached document reference number total";

const SYLLABLES: [&str; 32] = [
    "ba", "con", "der", "el", "fi", "gra", "hol", "in", "ju", "ka", "lor", "men", "nor", "os", "per", "qui", "ra",
    "ster", "tion", "ul", "ver", "wen", "xi", "yor", "zan", "ment", "able", "pre", "sub", "lin", "tor", "ic",
];

pub const CITIES: [&str; 16] = [
    "Berlin", "Lisbon", "Prague", "Oslo", "Vienna", "Dublin", "Madrid", "Warsaw", "Helsinki", "Athens", "Utrecht",
    "Lyon", "Porto", "Graz", "Bergen", "Turin",
];

pub const FIRST: [&str; 24] = [
    "Anna", "Ben", "Clara", "David", "Elena", "Felix", "Grace", "Hugo", "Ida", "Jonas", "Klara", "Liam", "Maria",
    "Noah", "Olga", "Paul", "Rosa", "Simon", "Tessa", "Ugo", "Vera", "Wim", "Yara", "Zoe",
];

/// How many words there are; the rarest come once in some hundred thousand.
const WORDS: usize = 12_000;

/// Bytes that a word takes in the table, its space included: copying a fixed number is several times faster.
const SLOT: usize = 24;

/// A vocabulary and the table that draws from it with frequency ∝ 1 / rank.
pub struct Vocabulary {
    words: Vec<String>,
    /// The same words with a space after each, and their lengths with it.
    slots: Vec<([u8; SLOT], u8)>,
    draw: Vec<u16>,
}

impl Vocabulary {
    /// The same vocabulary for the same seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x0076_6f63_6162);
        let mut words: Vec<String> = COMMON.split_whitespace().map(str::to_owned).collect();
        while words.len() < WORDS {
            let syllables = random.usize(2..5);
            words.push((0..syllables).map(|_| SYLLABLES[random.usize(..SYLLABLES.len())]).collect());
        }
        let sum: f64 = (1..=WORDS).map(|rank| 1.0 / rank as f64).sum();
        let mut draw = Vec::with_capacity(1 << 16);
        let mut share = 0.0;
        for rank in 0..WORDS {
            share += 65_536.0 / ((rank + 1) as f64 * sum);
            while draw.len() < share as usize && draw.len() < 1 << 16 {
                draw.push(rank as u16);
            }
        }
        draw.resize(1 << 16, (WORDS - 1) as u16);
        let slot = |word: &String| {
            let mut slot = [b' '; SLOT];
            slot[..word.len()].copy_from_slice(word.as_bytes());
            (slot, word.len() as u8 + 1)
        };
        Vocabulary { slots: words.iter().map(slot).collect(), words, draw }
    }

    /// One word.
    pub fn word(&self, random: &mut Rng) -> &str {
        &self.words[usize::from(self.draw[usize::from(random.u16(..))])]
    }

    /// Appends sentences of about `bytes` in all.
    pub fn prose(&self, random: &mut Rng, bytes: usize, out: &mut String) {
        let mut text = std::mem::take(out).into_bytes();
        let mut at = text.len();
        let end = at + bytes;
        while at < end {
            text.resize(at + 5 * SLOT, b' ');
            // One random number makes four words: a good part of this program's time is spent here.
            let mut four = random.u64(..);
            for _ in 0..4 {
                let (slot, length) = &self.slots[usize::from(self.draw[usize::from(four as u16)])];
                text[at..at + SLOT].copy_from_slice(slot);
                at += usize::from(*length);
                four >>= 16;
            }
            let mark: &[u8; 2] = match random.u8(..8) {
                0 => b"\n\n",
                1 | 2 => b". ",
                3 => b", ",
                _ => continue,
            };
            text[at..at + 2].copy_from_slice(mark);
            at += 2;
        }
        text.truncate(at);
        *out = String::from_utf8(text).unwrap_or_default(); // All words are ASCII.
    }
}

/// A random UUID (version 4) as text.
pub fn uuid(random: &mut Rng, out: &mut String) {
    let bits = random.u128(..) & !(0xf << 76) | 4 << 76;
    let _ = write!(
        out,
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        (bits >> 96) as u32,
        (bits >> 80) as u16,
        (bits >> 64) as u16,
        (bits >> 48) as u16 & 0x3fff | 0x8000,
        bits as u64 & 0xffff_ffff_ffff
    );
}

/// A number in `0..limit` of which small ones are far likelier.
pub fn skewed(random: &mut Rng, limit: u64) -> u64 {
    let share = random.f64();
    (share * share * share * limit as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_for_the_same_seed_and_the_commonest_word_leads() {
        let vocabulary = Vocabulary::new(1);
        let (mut one, mut two) = (String::new(), String::new());
        vocabulary.prose(&mut Rng::with_seed(5), 100_000, &mut one);
        Vocabulary::new(1).prose(&mut Rng::with_seed(5), 100_000, &mut two);
        assert_eq!(one, two);
        let count = |word: &str| one.split_whitespace().filter(|w| *w == word).count();
        assert!(count("the") > count("work") && count("work") > 0);
    }

    #[test]
    fn a_uuid_has_the_shape_and_version_of_one() {
        let mut text = String::new();
        uuid(&mut Rng::with_seed(1), &mut text);
        assert_eq!(text.len(), 36);
        assert_eq!(&text[14..15], "4");
        assert!("89ab".contains(&text[19..20]));
    }
}
