//! CHECKs that mean the same in the target: comparisons of columns with numbers or texts.

use super::drafts::Draft;
use super::statements::text_literal;
use crate::mysql_family::logical::names::quoted;
use crate::sqlite::outgoing::statement::Token;

const WORDS: [&str; 6] = ["AND", "OR", "NOT", "IN", "BETWEEN", "IS"];
const SIGNS: [&str; 9] = ["(", ")", ",", "<", ">", "<=", ">=", "=", "<>"];

/// The expression for the target. None if it may mean something else there.
pub fn translated(draft: &Draft, tokens: &[Token]) -> Option<String> {
    let (mut out, mut numbers, mut texts): (Vec<String>, bool, bool) = (Vec::new(), false, false);
    let mut before: Option<&Token> = None;
    for (at, token) in tokens.iter().enumerate() {
        let after = tokens.get(at + 1);
        out.push(match token {
            Token::Word(word) if token.is_word("NULL") => {
                // `a NOT NULL` has no IS.
                let is_after = |word: &str, at: usize| {
                    at.checked_sub(1).and_then(|at| tokens.get(at)).is_some_and(|token| token.is_word(word))
                };
                (is_after("IS", at) || is_after("NOT", at) && is_after("IS", at - 1)).then(|| word.to_uppercase())?
            }
            Token::Word(word) if WORDS.iter().any(|known| token.is_word(known)) => {
                let is_null = |token: Option<&Token>| token.is_some_and(|token| token.is_word("NULL"));
                let is_test =
                    is_null(after) || after.is_some_and(|token| token.is_word("NOT")) && is_null(tokens.get(at + 2));
                (!token.is_word("IS") || is_test).then(|| word.to_uppercase())?
            }
            Token::Word(name) | Token::Name(name) => {
                // Not a function.
                if after.is_some_and(|token| *token == Token::Sign("(".into())) {
                    return None;
                }
                let place = draft.table.place(name)?;
                match draft.kinds.get(place)? {
                    kind if kind.is_number() => numbers = true,
                    super::kinds::Kind::Text(_) => texts = true,
                    _ => return None,
                }
                quoted(&draft.table.columns.get(place)?.name)
            }
            Token::Text(text) => {
                texts = true;
                text_literal(text)
            }
            Token::Number(number) => {
                numbers = true;
                (!number.starts_with("0x") && !number.contains('_')).then(|| number.clone())?
            }
            Token::Sign(sign) if sign == "==" => "=".to_owned(),
            Token::Sign(sign) if sign == "!=" => "<>".to_owned(),
            // A sign, not a difference.
            Token::Sign(sign) if sign == "-" => {
                let begins = |token: &Token| {
                    matches!(token, Token::Word(_)) || matches!(token, Token::Sign(sign) if sign != ")")
                };
                let is_sign = before.is_none_or(begins) && matches!(after, Some(Token::Number(_)));
                let of_column =
                    before.is_some_and(|token| matches!(token, Token::Word(name) if draft.table.place(name).is_some()));
                (is_sign && !of_column).then(|| "-".to_owned())?
            }
            Token::Sign(sign) if SIGNS.contains(&sign.as_str()) => sign.clone(),
            Token::Sign(_) => return None,
        });
        before = Some(token);
    }
    // SQLite and the target convert a text that is compared with a number in different ways.
    (!out.is_empty() && numbers != texts).then(|| out.join(" "))
}
