//! The XML in answers of stores: an answer as a tree of elements, bounded, and without entities of its own.
//!
//! `fuzz/src/targets/store_answer.rs` includes this file, so it uses nothing else of the crate.
//!
//! Public source: Extensible Markup Language (XML) 1.0, fifth edition.

use std::borrow::Cow;
use std::fmt;
use std::mem;

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// The most levels and elements of an answer. Azure lists 100,000 blocks in an answer, with three elements each.
const DEPTH_MOST: usize = 32;
const ELEMENTS_MOST: usize = 1 << 19;
/// How the error begins for an answer that cannot be read. A retry does not help.
pub(super) const UNREADABLE: &str = "the store's answer cannot be read: ";

/// An element without its attributes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Element<'a> {
    /// Without the prefix of its namespace.
    name: String,
    /// The text that is not in an element inside.
    text: Cow<'a, str>,
    inner: Vec<Element<'a>>,
}

/// Why an answer cannot be read, and where.
#[derive(Debug)]
pub(super) struct Unreadable {
    at: u64,
    why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UNREADABLE}at byte {}: {}", self.at, self.why)
    }
}

impl std::error::Error for Unreadable {}

impl<'a> Element<'a> {
    /// The one element that an answer consists of.
    ///
    /// # Errors
    /// The answer is not well-formed, has a DOCTYPE, or exceeds a bound.
    pub fn read(answer: &'a str) -> Result<Self, Unreadable> {
        let (mut whole, flaw) = read(answer);
        match (flaw, whole.inner.pop()) {
            (Some(flaw), _) => Err(flaw),
            (None, Some(root)) if whole.inner.is_empty() && whole.text.trim().is_empty() => Ok(root),
            _ => Err(Unreadable { at: 0, why: "it is not exactly one element".into() }),
        }
    }

    /// The elements of that name in it, in order. An element inside another of the same name is not listed.
    pub fn all(&self, name: &str) -> Vec<&Self> {
        self.inner.iter().flat_map(|one| if one.name == name { vec![one] } else { one.all(name) }).collect()
    }

    /// The text of the first element of that name in it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.inner.iter().find_map(|one| if one.name == name { Some(one.text.as_ref()) } else { one.text(name) })
    }
}

/// The text of the first element of that name in an answer, or in an error that quotes an answer. Something else may
/// surround the XML, and it may be cut off after this element.
pub(super) fn said(text: &str, name: &str) -> Option<String> {
    // The key of an object can have a `<`, and is in the error too.
    let begin = ["<?xml", "<Error", "<Code", "<"].iter().find_map(|mark| text.find(mark))?;
    read(&text[begin..]).0.text(name).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// True for an answer that is an error, whatever its status.
pub(super) fn is_error(answer: &str) -> bool {
    read(answer).0.inner.iter().any(|root| root.name == "Error")
}

/// The elements at the top of a text, as those of an element without a name, and its flaw. Only what is before the flaw
/// is read, and the text of elements that it cuts off is left out.
fn read(text: &str) -> (Element<'_>, Option<Unreadable>) {
    let mut reader = Reader::from_str(text);
    let mut tree = Tree::default();
    loop {
        let at = reader.buffer_position();
        let flaw = match reader.read_event() {
            Ok(Event::Eof) if tree.outer.is_empty() => return (tree.now, None),
            Ok(event) => tree.take(event).err().map(|why| Unreadable { at, why }),
            Err(error) => Some(Unreadable { at: reader.error_position(), why: error.to_string() }),
        };
        if flaw.is_some() {
            while !tree.outer.is_empty() {
                tree.now.text = Cow::default();
                tree.end();
            }
            return (tree.now, flaw);
        }
    }
}

/// What is read so far.
#[derive(Default)]
struct Tree<'a> {
    now: Element<'a>,
    /// The elements that `now` is in.
    outer: Vec<Element<'a>>,
    elements: usize,
}

impl<'a> Tree<'a> {
    fn take(&mut self, event: Event<'a>) -> Result<(), String> {
        match event {
            Event::Start(start) => self.begin(&start)?,
            Event::Empty(start) => {
                self.begin(&start)?;
                self.end();
            }
            Event::End(_) => self.end(),
            Event::Text(text) => self.add(text.decode().map_err(|error| error.to_string())?),
            Event::CData(data) => self.add(data.decode().map_err(|error| error.to_string())?),
            Event::GeneralRef(reference) => self.add(resolved(&reference)?),
            Event::DocType(_) => return Err("it has a DOCTYPE".into()),
            Event::Eof => return Err(format!("it ends inside of <{}>", self.now.name)),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
        }
        Ok(())
    }

    fn begin(&mut self, start: &BytesStart<'_>) -> Result<(), String> {
        self.elements += 1;
        if self.elements > ELEMENTS_MOST {
            return Err(format!("it has more than {ELEMENTS_MOST} elements"));
        }
        if self.outer.len() == DEPTH_MOST {
            return Err(format!("it has more than {DEPTH_MOST} levels"));
        }
        let name = String::from_utf8_lossy(start.local_name().into_inner()).into_owned();
        self.outer.push(mem::replace(&mut self.now, Element { name, ..Element::default() }));
        Ok(())
    }

    fn end(&mut self) {
        if let Some(outer) = self.outer.pop() {
            let ended = mem::replace(&mut self.now, outer);
            self.now.inner.push(ended);
        }
    }

    fn add(&mut self, text: Cow<'a, str>) {
        match self.now.text.is_empty() {
            true => self.now.text = text,
            false => self.now.text.to_mut().push_str(&text),
        }
    }
}

/// A character by its number, or one of the five entities of XML itself: no other entity is known without a DOCTYPE.
fn resolved(reference: &BytesRef<'_>) -> Result<Cow<'static, str>, String> {
    if let Some(letter) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(letter.to_string().into());
    }
    let name = reference.decode().map_err(|error| error.to_string())?;
    resolve_xml_entity(&name).map(Cow::from).ok_or_else(|| format!("the entity `{name}` is not known"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn code(answer: &str) -> Option<String> {
        Element::read(answer).unwrap().text("Code").map(str::to_owned)
    }

    fn refused(answer: &str, why: &str, at: u64) {
        let error = Element::read(answer).unwrap_err();
        let told = error.to_string();
        assert!(told.starts_with(UNREADABLE) && told.contains(why), "`{why}` is not in: {told}");
        assert_eq!(error.at, at, "{told}");
    }

    #[test]
    fn entities_of_xml_and_characters_by_number_are_read() {
        assert_eq!(code("<E><Code>a&#39;b&#x2F;c&#x2f;&#x1F600;</Code></E>").unwrap(), "a'b/c/😀");
        assert_eq!(code("<E><Code>&lt;&gt;&amp;&quot;&apos;&amp;lt;</Code></E>").unwrap(), "<>&\"'&lt;");
        refused("<E>&nbsp;</E>", "nbsp", 3);
        refused("<E>&#0;</E>", "0x0 character", 3);
        refused("<E>&#x110000;</E>", "not a valid codepoint", 3);
        refused("<E>a&b</E>", "not closed", 4);
    }

    #[test]
    fn attributes_comments_and_instructions_are_passed_over() {
        let answer = "\u{feff}<?xml version='1.0' encoding='UTF-8'?>\n<!-- <Code>no</Code> --><?pi <Code>?>\n\
            <E xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\" a='<Code>>'>\n  <Empty x=\"/>\"/>\n\
            <Code type=\"t\">b<!-- c -->d</Code ></E>\n";
        assert_eq!(code(answer).unwrap(), "bd");
        assert_eq!(Element::read(answer).unwrap().text("Empty"), Some(""));
    }

    #[test]
    fn cdata_is_text_as_it_is_written() {
        assert_eq!(code("<E><Code>a<![CDATA[<b>&amp;]]>&amp;</Code></E>").unwrap(), "a<b>&amp;&");
        assert_eq!(code("<E><![CDATA[<Code>x</Code>]]></E>"), None);
    }

    #[test]
    fn a_name_counts_without_the_prefix_of_its_namespace() {
        assert_eq!(code("<s3:E xmlns:s3='urn:x'><s3:Code>A</s3:Code></s3:E>").unwrap(), "A");
        refused("<E><a:Code>A</b:Code></E>", "a:Code", 12);
    }

    #[test]
    fn elements_are_found_at_any_depth_and_in_order() {
        let page = Element::read("<R><P><N> 1 </N></P><Q><P><N>2</N><P><N>3</N></P></P></Q></R>").unwrap();
        let names: Vec<_> = page.all("P").iter().map(|part| part.text("N").unwrap().to_owned()).collect();
        assert_eq!(names, [" 1 ", "2"]);
        assert_eq!((page.text("N"), page.text("R"), page.all("X").len()), (Some(" 1 "), None, 0));
    }

    #[test]
    fn malformed_text_is_refused_with_its_position() {
        refused("<E><A></E></A>", "expected `</A>`", 6);
        refused("<E></E></E>", "does not match", 7);
        refused("<E><Code>A", "it ends inside of <Code>", 10);
        refused("<E><Code>A</Cod", "not closed", 10);
        refused("<E><!-- ", "comment not closed", 3);
        refused("<E><![CDATA[ ", "CDATA not closed", 3);
        for answer in ["", " ", "text", "<A/><B/>", "text<A/>", "<A/>text"] {
            refused(answer, "not exactly one element", 0);
        }
    }

    #[test]
    fn a_doctype_is_refused_and_no_entity_of_it_is_expanded() {
        let laughs = "<!DOCTYPE l [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;&a;\">]><E><Code>&b;</Code></E>";
        refused(laughs, "DOCTYPE", 0);
        refused("<!DOCTYPE E SYSTEM \"file:///etc/passwd\"><E/>", "DOCTYPE", 0);
        refused("<!doctype html><html></html>", "DOCTYPE", 0);
        assert_eq!(said(laughs, "Code"), None);
    }

    #[test]
    fn a_bomb_of_levels_or_of_elements_is_refused_at_its_bound() {
        let deep = |levels: usize| "<a>".repeat(levels) + &"</a>".repeat(levels);
        assert!(Element::read(&deep(DEPTH_MOST)).is_ok());
        refused(&deep(DEPTH_MOST + 1), "more than 32 levels", 3 * DEPTH_MOST as u64);
        refused(&"<a>".repeat(1 << 22), "more than 32 levels", 3 * DEPTH_MOST as u64);
        let wide = |elements: usize| format!("<R>{}</R>", "<a/>".repeat(elements - 1));
        assert!(Element::read(&wide(ELEMENTS_MOST)).is_ok());
        refused(&wide(ELEMENTS_MOST + 1), "elements", 3 + 4 * (ELEMENTS_MOST as u64 - 1));
    }

    #[test]
    fn a_code_is_found_in_an_error_that_quotes_an_answer_and_in_one_that_is_cut_off() {
        let quoted =
            "Object at a<b&c not found: status 404: <?xml version=\"1.0\"?><Error><Code>No</Code></Error>, 1 & 2";
        assert_eq!(said(quoted, "Code").as_deref(), Some("No"));
        assert_eq!(said("<Code>A</Code><Message>m &amp; n</Message>", "Message").as_deref(), Some("m & n"));
        assert_eq!(said("<Error><Code>A</Code><Message>is cut o", "Code").as_deref(), Some("A"));
        assert_eq!(said("<Error><Code>A</Code><Message>is cut o", "Message"), None);
        assert_eq!(said("<Error><Code>Internal", "Code"), None);
        assert_eq!((said("", "Code"), said("a < b", "Code"), said("<Code/>", "Code")), (None, None, None));
    }

    #[test]
    fn an_error_is_told_by_its_root() {
        for error in ["<Error>", "\n <Error xmlns='u'><Code>A</Code></Error>", "<?xml version='1.0'?><Error><Code>A"] {
            assert!(is_error(error), "{error}");
        }
        for other in ["", "<R><Error/></R>", "<R>&lt;Error&gt;</R>", "Error"] {
            assert!(!is_error(other), "{other}");
        }
    }

    /// Trees of texts and elements, and each as XML.
    fn tree() -> impl proptest::strategy::Strategy<Value = (Element<'static>, String)> {
        use proptest::prelude::*;
        let leaf = ("[A-Z][a-z]{0,3}", "[ -~äß😀]{0,12}").prop_map(|(name, text)| {
            let xml = format!("<{name} a='1'>{}</{name}>", quick_xml::escape::escape(&text));
            (Element { name, text: text.into(), inner: Vec::new() }, xml)
        });
        leaf.prop_recursive(4, 40, 5, |inner| {
            ("[A-Z][a-z]{0,3}", prop::collection::vec(inner, 1..5)).prop_map(|(name, inside)| {
                let (inner, xml): (Vec<_>, Vec<_>) = inside.into_iter().unzip();
                let xml = format!("<n:{name}>{}</n:{name}>", xml.concat());
                (Element { name, text: Cow::default(), inner }, xml)
            })
        })
    }

    proptest::proptest! {
        #[test]
        fn every_tree_is_read_as_it_was_written((tree, xml) in tree()) {
            proptest::prop_assert_eq!(Element::read(&xml).unwrap(), tree);
        }

        #[test]
        fn no_text_is_a_panic_and_none_becomes_longer(pieces in proptest::collection::vec(
            "(<|</|<!|<!\\[CDATA\\[|<!--|<\\?)?(Error|Code|a:b|DOCTYPE)?(>|/>|\\]\\]>|-->)?|&(#x?[0-9a-f]{0,6}|lt|x);?|.{0,4}",
            0..60,
        )) {
            let text = pieces.concat();
            let code = said(&text, "Code").unwrap_or_default();
            proptest::prop_assert!(code.len() <= text.len());
            if let Err(flaw) = Element::read(&text) {
                proptest::prop_assert!(flaw.at <= text.len() as u64 && !flaw.why.is_empty(), "{}", flaw);
            }
        }
    }
}
