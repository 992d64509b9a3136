//! How MySQL and MariaDB write the name of a database or table as a file name.
//!
//! The manual of MySQL ("Mapping of Identifiers to File Names") has the rule. Basic Latin letters, digits and the
//! underscore are unchanged. Any other character is `@` and its four hexadecimal digits. The letters of some alphabets
//! have an `@` and two special characters, one of which shows the case: see [`LETTERS`]. MariaDB 10.11 and 11.8 gave
//! all of them (`CONVERT(… USING filename)`), and MySQL 9.7 made a table for each.

/// Runs of letters: the first of a run, and two characters for each; `--` if a letter has no special characters.
const LETTERS: &[(u32, &str)] = &[
    (
        0x00C0,
        "\
        0G0H0I0J0K0L0M0N0O0P0Q0R0S0T0U0V0W0X0Y0Z1G1H1I--1K1L1M1N1O1P1Q1j0g0h0i0j0k0l0m0n0o0p0q0r0s0t0u0v0w0x0y0z1g1h\
        1i--1k1l1m1n1o1p1q1r1S1s1T1t1U1u1V1v1W1w1X1x1Y1y1Z1z2G2g2H2h2I2i2J2j2K2k2L2l2M2m2N2n2O2o2P2p2Q2q2R2r2S2s2T2t\
        2U2u2V2v--2w2X2x2Y2y2Z2z3g3H3h3I3i3J3j3K3k3L3l3M3m3N3n3O3o3p3Q3q3R3r3S3s3T3t3U3u3V3v3W3w3X3x3Y3y3Z3z4G4g4H4h\
        4I4i4J4j4K4k4L4l4M4m4N4n4O4o4P4p4Q4q4R4r4S4s1R4T4t4U4u4V4v4wgaQfHahaIaiaRfJajaTfUfKakalaZbWfYfMamaJgMgnaSgRg\
        OaoapaqaYgHhraKhSasaTataUauaVhVavaYhwaxaYayaJiZazaLiMiGbgbHbhbTiIbibjbkbNbnbmb----------Ob--obPb--pbQb--qbRb\
        rbSbsbTbtbUbubVbvbWbwbXbxbYbybzbGcgcHchcIcicJcjcKckcLclcMcmcNcncOcocpcQc--qcRcrcNa--ScscTctcUcucVcvcWcwcXcxc\
        YcycZczcGdgdHdhdIdidJdjdKdkdLdldMdmdNdndOdodPdpdQdqdRdrdRasdTdtdUdudVdvdWdwdXdxdYdydZdzdGegeHeheiejekelemene\
        OePepePaQereseVi----------------------------nfofpfqfrfsftfufvfwfxfyfzfgghgigjgkglgmgngogpgqgrgsgtgugvgwgxgyg\
        zgghhhihjhkhlhmhnhohphqhrhshthuhvhwhxhyhzhgihiiijikiliminioipiqirisitiuiviwixiyizigjhjijjjkjljmjnjojpjqjrjsj\
        tjujvjwjxjyjzjgkhkik",
    ),
    (
        0x0386,
        "\
        6G--6H6I6J--7S--7T7U5y6L7W6N6O6P6Q6R7X6T8W6V6W6X6Y6Z8I7H--8Y7K7L8H7N7O7P7Q7R6g6h6i6j6k6l6m6n6o6p6q6r6s6t6u6v\
        6w6x6y6z7g7h7i7j7k7l7m7n7o7p7q7r7s7t7u--7w7x7Y7Z8G8h8i8j--8k8L8l8M8m8N8n8O8o8P8p8Q8q8R8r8S8s8T8t8U8u8V8v8w8x\
        8y8z--9g9h--9i----9j9k9L9M9NS1T1U1V1W1X1Y1Z1G2H2I2J2K2L2M2N2G0H0I0J0K0L0M0N0O0P0Q0R0S0T0U0V0W0X0Y0Z0G1H1I1J1\
        K1L1M1N1O1P1Q1R1g0h0i0j0k0l0m0n0o0p0q0r0s0t0u0v0w0x0y0z0g1h1i1j1k1l1m1n1o1p1q1r1s1t1u1v1w1x1y1z1g2h2i2j2k2l2\
        m2n2O2o2P2p2Q2q2R2r2S2s2T2t2U2u2V2v2W2w2X2x2Y2y2Z2z2G3g3H3h3I3i3J3j3K3k3----------------M3m3N3n3O3o3P3p3Q3q3\
        R3r3S3s3T3t3U3u3V3v3W3w3X3x3Y3y3Z3z3G4g4H4h4I4i4J4j4K4k4L4l4M4m4N4n4O4o4P4p4Q4q4R4r4S4s4T4U4u4V4v4W4w4X4x4Y4\
        y4Z4z4G5g5--I5i5J5j5K5k5L5l5M5m5N5n5O5o5P5p5Q5q5R5r5S5s5T5t5U5u5V5v5W5w5X5x5Y5y5Z5z5G6g6H6h6I6i6------------\
        P6p6Q6q6R6r6S6s6T6t6U6u6V6v6W6w6",
    ),
    (
        0x0531,
        "\
        H7I7J7K7L7M7N7O7P7Q7R7S7T7U7V7W7X7Y7Z7G8H8I8J8K8L8M8N8O8P8Q8R8S8T8U8V8W8X8----------------------h7i7j7k7l7m7\
        n7o7p7q7r7s7t7u7v7w7x7y7z7g8h8i8j8k8l8m8n8o8p8q8r8s8t8u8v8w8x8",
    ),
    (
        0x1E00,
        "\
        GlglHlhlIlilJljlKlklLlllMlmlNlnlOlolPlplQlqlRlrlSlslTltlUlulVlvlWlwlXlxlYlylZlzlGmgmHmhmImimJmjmKmkmLmlmMmmm\
        NmnmOmomPmpmQmqmRmrmSmsmTmtmUmumVmvmWmwmXmxmYmymZmzmGngnHnhnIninJnjnKnknLnlnMnmnNnnnGponPnpnQnqnRnrnSnsnTntn\
        UnunVnvnWnwnXnxnYnynZnznGogoHohoIoioJojoKokoLoloMomoNonoOoooPopoQoqoRoroSosoTotoUouovowoxoyozogp--------Lplp\
        MpmpNpnpOpopPpppQpqpRprpSpspTptpUpupVpvpWpwpXpxpYpypZpzpGqgqHqhqIqiqJqjqKqkqLqlqMqmqNqnqOqoqPqpqQqqqRqrqSqsq\
        TqtqUquqVqvqWqwqXqxqYqyqZqzqGrgrHrhrIrirJrjrKrkrLrlrMrmrNrnrOrorPrpr------------gshsisjskslsmsnsGsHsIsJsKsLs\
        MsNsospsqsrsssts----OsPsQsRsSsTs----yszsgthtitjtktltYsZsGtHtItJtKtLtmtntotptqtrtstttMtNtOtPtQtRtStTtutvtwtxt\
        ytzt----UtVtWtXtYtZt----kulumunuoupuquru--Lu--Nu--Pu--RuwuxuyuzugvhvivjvWuXuYuZuGvHvIvJvkvlvmvnvovpvqvrvsvtv\
        uvvvwvxv----gwhwiwjwkwlwmwnwGwHwIwJwKwLwMwNwowpwqwrwswtwuwvwOwPwQwRwSwTwUwVwwwxwywzwgxhxixjxWwXwYwZwGxHxIxJx\
        kxlxmxnxox--qxrxKxLxKvLvNx----------sxtxux--wxxxMvNvOvPvTx------yxzxgyhy----kylyYxZxQvRv--------nyoypyqyrysy\
        tyuyNyOyUvVvSy----------xyyy----hzizSvTvWvXvYy",
    ),
    (
        0x2160,
        "\
        G9H9I9J9K9L9M9N9O9P9Q9R9S9T9U9V9g9h9i9j9k9l9m9n9o9p9q9r9s9t9u9v9",
    ),
    (
        0x24B6,
        "\
        @A@B@C@D@E@F@G@H@I@J@K@L@M@N@O@P@Q@R@S@T@U@V@W@X@Y@Z@a@b@c@d@e@f@g@h@i@j@k@l@m@n@o@p@q@r@s@t@u@v@w@x@y@z",
    ),
    (
        0xFF21,
        "\
        A@B@C@D@E@F@G@H@I@J@K@L@M@N@O@P@Q@R@S@T@U@V@W@X@Y@Z@------------a@b@c@d@e@f@g@h@i@j@k@l@m@n@o@p@q@r@s@t@u@v@\
        w@x@y@z@",
    ),
];
/// Names that are devices on Windows get three more `@` on every system.
const DEVICES: &[&str] = &["con", "prn", "aux", "nul"];

/// The name in the file system, without an ending.
pub fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    let mut units = [0; 2];
    for character in name.chars() {
        if character.is_ascii_alphanumeric() || character == '_' {
            encoded.push(character);
        } else if let Some(own) = letter(character) {
            encoded.push('@');
            encoded.push_str(own);
        } else {
            let units = character.encode_utf16(&mut units);
            encoded.extend(units.iter().map(|unit| format!("@{unit:04x}")));
        }
    }
    if is_device(name) {
        encoded.push_str("@@@");
    }
    encoded
}

/// The two characters of a letter.
fn letter(character: char) -> Option<&'static str> {
    LETTERS.iter().find_map(|(first, pairs)| {
        let at = 2 * u32::from(character).checked_sub(*first)? as usize;
        pairs.get(at..at + 2).filter(|own| *own != "--")
    })
}

/// The letter of two characters.
fn letter_of(own: &str) -> Option<char> {
    LETTERS.iter().find_map(|(first, pairs)| {
        let at = (0..pairs.len()).step_by(2).find(|at| &pairs[*at..at + 2] == own)?;
        char::from_u32(first + (at / 2) as u32)
    })
}

fn is_device(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let numbered = |stem| lower.strip_prefix(stem).is_some_and(|number| matches!(number.as_bytes(), [b'1'..=b'9']));
    DEVICES.contains(&&lower[..]) || numbered("com") || numbered("lpt")
}

/// The name of a file name, for messages; unknown parts stay unchanged.
pub fn decode(encoded: &str) -> String {
    let encoded = encoded.strip_suffix("@@@").unwrap_or(encoded);
    let mut name = String::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some((before, after)) = rest.split_once('@') {
        name.push_str(before);
        let digits = after.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
        let letter = after.get(..2).and_then(letter_of);
        let (character, length) = match (digits, letter) {
            (Some(character), _) => (character, 4),
            (None, Some(character)) => (character, 2),
            (None, None) => ('@', 0),
        };
        name.push(character);
        rest = &after[length..];
    }
    name.push_str(rest);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_the_servers_write_them() {
        let names = [
            ("item_1", "item_1"),
            ("a b", "a@0020b"),
            ("$a", "@0024a"),
            ("a#b", "a@0023b"),
            ("a.b@c", "a@002eb@0040c"),
            ("aÿ€", "a@1r@20ac"),
            ("NUL", "NUL@@@"),
            ("lpt1", "lpt1@@@"),
            ("lpt10", "lpt10"),
        ];
        for (name, encoded) in names {
            assert_eq!(encode(name), encoded);
            assert_eq!(decode(encoded), name);
        }
    }

    #[test]
    fn each_letter_has_two_characters_that_no_other_has() {
        let all: Vec<char> = LETTERS
            .iter()
            .flat_map(|(first, pairs)| (0..pairs.len() / 2).map(move |at| first + at as u32))
            .filter_map(char::from_u32)
            .filter(|letter| encode(&letter.to_string()).len() == 3)
            .collect();
        assert_eq!(all.len(), 1510);
        for letter in all {
            assert_eq!(decode(&encode(&letter.to_string())), letter.to_string());
        }
    }

    #[test]
    fn a_name_without_encoding_stays_unchanged() {
        for text in ["a@", "@", "a@zz", "@x", "é@é"] {
            assert_eq!(decode(text), text);
        }
    }
}
