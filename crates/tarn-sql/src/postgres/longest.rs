//! Which of several matches does PostgreSQL take? Of those that begin first the longest, or the shortest if the pattern
//! prefers that, and inside of it each part in its turn the longest or shortest that leaves a match for the rest:
//! `'xyz' ~ '.|...'` is `xyz`. The engine takes the first alternative that leads anywhere: `x`.
//!
//! For most patterns both are the same, which [`Tree::of`] sees by their form: then the engine alone is asked. For the
//! others it says where a match begins, and its end and its groups are found here: for each part of the pattern and
//! each place, where the part may end. That takes as much time as the text is long for each part, which is bounded.
//!
//! What a part prefers (manual, 9.7.3.5): a quantifier what it says, a repetition of a fixed number what is repeated,
//! alternatives the longest, a sequence what its first part with a preference has.
//!
//! Source: the manual, and what PostgreSQL's server answers.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use regex::{Regex, RegexBuilder};

use super::pattern_flags::Flags;
use crate::error::{SqlError, state};

/// Places at which parts end, of all matches in a text: some hundredths of a second.
const MAX_ENDS: usize = 1 << 18;
/// How deep groups may be in groups.
const MAX_DEPTH: usize = 100;

/// A group's place in the text, in bytes.
pub(super) type GroupSpan = Option<(usize, usize)>;

/// A part of a pattern, by its number in the tree.
type NodeId = usize;

#[derive(Debug)]
enum PatternKind {
    Empty,
    Letter(Letter),
    /// Between letters.
    Border(Border),
    Group(usize, NodeId),
    Repeat {
        of: NodeId,
        least: u32,
        most: Option<u32>,
        prefers: Option<MatchLength>,
    },
    /// One behind the other.
    Both(NodeId, NodeId),
    Either(Vec<NodeId>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MatchLength {
    Longest,
    Shortest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Border {
    Start,
    End,
    LineStart,
    LineEnd,
    Word,
    NotWord,
    WordStart,
    WordEnd,
}

/// One of some letters.
#[derive(Debug)]
struct Letter {
    is: Regex,
    /// Those of ASCII.
    ascii: u128,
    beyond: NonAsciiClass,
}

/// Which letters beyond ASCII may be among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NonAsciiClass {
    None,
    Words,
    Spaces,
    Any,
}

/// Letters with which a part may begin. `None`: it may be empty.
type FirstLetters = Option<Vec<(u128, NonAsciiClass)>>;

/// A pattern, of which the engine's match may be another than PostgreSQL's.
#[derive(Debug)]
pub(super) struct Tree {
    parts: Vec<PatternKind>,
    root: NodeId,
    n_groups: usize,
    word: Regex,
}

impl Tree {
    /// Of a pattern as the engine has it. `None`: the engine's matches are PostgreSQL's.
    ///
    /// Errors: `54001`, groups in groups too deep.
    pub(super) fn of(pattern: &str, flags: Flags) -> Result<Option<Tree>, SqlError> {
        let word = Regex::new(r"^\w$").map_err(|_| too_complex())?;
        let tree = Tree { parts: vec![], root: 0, n_groups: 0, word };
        let mut reader = PatternParser { tree, rest: pattern, flags, depth: 0 };
        let root = reader.alternatives()?;
        let mut tree = reader.tree;
        tree.root = root;
        if tree.is_alike() {
            return Ok(None);
        }
        Ok(Some(tree))
    }

    /// Whether a group is repeated that may be empty: of which repetition it is, PostgreSQL says in its own way.
    fn is_odd(&self, kind: &PatternKind) -> bool {
        match kind {
            PatternKind::Repeat { of, most, .. } => {
                *most != Some(1) && self.has_groups(*of) && self.first(*of).is_none()
            }
            _ => false,
        }
    }

    /// The groups of a match that begins there, the whole first. `work`: what was done for this text before.
    ///
    /// Errors: `54001`, there are too many ways to match; `0A000`, a group is in a repetition of what may be empty.
    pub(super) fn groups(
        &self,
        text: &str,
        start: usize,
        work: &Cell<usize>,
    ) -> Result<Option<Vec<GroupSpan>>, SqlError> {
        if self.parts.iter().any(|kind| self.is_odd(kind)) {
            return Err(SqlError::unsupported(
                "a group in a repetition of what may be empty is not supported in this regular expression",
                "repeat what has a letter: (a+)* for (a*)*",
            ));
        }
        let mut ends = EndFinder { tree: self, text, known: HashMap::new(), work };
        let all = ends.of(self.root, start)?;
        let end = match self.prefers(self.root) {
            Some(MatchLength::Shortest) => all.first(),
            _ => all.last(),
        };
        let Some(end) = end.copied() else { return Ok(None) };
        let mut groups = vec![None; self.n_groups + 1];
        groups[0] = Some((start, end));
        ends.dissect(self.root, start, end, &mut groups)?;
        Ok(Some(groups))
    }

    fn prefers(&self, part: NodeId) -> Option<MatchLength> {
        match &self.parts[part] {
            PatternKind::Empty | PatternKind::Letter(_) | PatternKind::Border(_) => None,
            PatternKind::Group(_, of) => self.prefers(*of),
            PatternKind::Repeat { of, prefers, .. } => prefers.or_else(|| self.prefers(*of)),
            PatternKind::Both(left, right) => self.prefers(*left).or_else(|| self.prefers(*right)),
            PatternKind::Either(_) => Some(MatchLength::Longest),
        }
    }

    fn has_groups(&self, part: NodeId) -> bool {
        match &self.parts[part] {
            PatternKind::Group(..) => true,
            PatternKind::Repeat { of, .. } => self.has_groups(*of),
            PatternKind::Both(left, right) => self.has_groups(*left) || self.has_groups(*right),
            PatternKind::Either(all) => all.iter().any(|of| self.has_groups(*of)),
            PatternKind::Empty | PatternKind::Letter(_) | PatternKind::Border(_) => false,
        }
    }

    /// Whether the engine finds the same.
    fn is_alike(&self) -> bool {
        if let PatternKind::Either(all) = &self.parts[self.root] {
            let are_longest = all.iter().all(|of| self.prefers(*of) != Some(MatchLength::Shortest));
            return self.is_determined(self.root)
                || (are_longest && self.are_disjoint(all) && all.iter().all(|of| self.is_alike_in_sequence(*of)));
        }
        self.is_alike_in_sequence(self.root)
    }

    fn is_alike_in_sequence(&self, part: NodeId) -> bool {
        let items = self.sequence(part);
        let open: Vec<usize> = (0..items.len()).filter(|at| !self.is_determined(items[*at])).collect();
        if !open.iter().all(|at| self.is_simple(items[*at])) {
            return false;
        }
        // Its end is that of the text: both try the parts in one order.
        if items.last().is_some_and(|last| matches!(self.parts[*last], PatternKind::Border(Border::End))) {
            return true;
        }
        let prefers = self.prefers(part);
        if !open.iter().all(|at| self.prefers(items[*at]) == prefers) {
            return false;
        }
        open.len() <= 1 || (prefers == Some(MatchLength::Longest) && open.iter().all(|at| self.is_told(&items, *at)))
    }

    /// Whether the next letter tells if such a part goes on or what is behind it begins.
    fn is_told(&self, items: &[NodeId], at: usize) -> bool {
        let own = self.repeated(items[at]).and_then(|of| self.first(of));
        let Some(own) = own else { return false };
        for item in &items[at + 1..] {
            let is_open = !self.is_determined(*item);
            let of = if is_open { self.repeated(*item).and_then(|of| self.first(of)) } else { self.first(*item) };
            match of {
                Some(of) if !are_apart(&own, &of) => return false,
                Some(_) if self.first(*item).is_some() => return true,
                Some(_) => {}
                // A border takes no letter; what is empty otherwise tells nothing.
                None if matches!(self.parts[*item], PatternKind::Border(_) | PatternKind::Empty) => {}
                None => return false,
            }
        }
        true
    }

    /// What is repeated in a simple part.
    fn repeated(&self, part: NodeId) -> Option<NodeId> {
        match &self.parts[part] {
            PatternKind::Group(_, of) => self.repeated(*of),
            PatternKind::Repeat { of, .. } => Some(*of),
            _ => None,
        }
    }

    fn sequence(&self, part: NodeId) -> Vec<NodeId> {
        match &self.parts[part] {
            PatternKind::Both(left, right) => self.sequence(*left).into_iter().chain(self.sequence(*right)).collect(),
            _ => vec![part],
        }
    }

    /// Whether the text says how long it is.
    fn is_determined(&self, part: NodeId) -> bool {
        match &self.parts[part] {
            PatternKind::Empty | PatternKind::Letter(_) | PatternKind::Border(_) => true,
            PatternKind::Group(_, of) => self.is_determined(*of),
            PatternKind::Repeat { of, least, most, .. } => *most == Some(*least) && self.is_determined(*of),
            PatternKind::Both(left, right) => self.is_determined(*left) && self.is_determined(*right),
            PatternKind::Either(all) => {
                let lengths: Vec<_> = all.iter().map(|of| self.length(*of)).collect();
                let is_one = lengths.iter().all(|length| length.is_some() && *length == lengths[0]);
                is_one || (self.are_disjoint(all) && all.iter().all(|of| self.is_determined(*of)))
            }
        }
    }

    /// Letters, if they are always as many.
    fn length(&self, part: NodeId) -> Option<u32> {
        match &self.parts[part] {
            PatternKind::Empty | PatternKind::Border(_) => Some(0),
            PatternKind::Letter(_) => Some(1),
            PatternKind::Group(_, of) => self.length(*of),
            PatternKind::Repeat { of, least, most, .. } => {
                (*most == Some(*least)).then(|| self.length(*of))?.and_then(|length| length.checked_mul(*least))
            }
            PatternKind::Both(left, right) => self.length(*left)?.checked_add(self.length(*right)?),
            PatternKind::Either(all) => {
                let first = self.length(*all.first()?)?;
                all.iter().all(|of| self.length(*of) == Some(first)).then_some(first)
            }
        }
    }

    /// A repetition of what the text determines: the engine tries its lengths in their order.
    fn is_simple(&self, part: NodeId) -> bool {
        match &self.parts[part] {
            PatternKind::Group(_, of) => self.is_simple(*of),
            PatternKind::Repeat { of, .. } => self.is_determined(*of) && self.first(*of).is_some(),
            _ => false,
        }
    }

    /// The letters with which it begins.
    fn first(&self, part: NodeId) -> FirstLetters {
        match &self.parts[part] {
            PatternKind::Empty | PatternKind::Border(_) => None,
            PatternKind::Letter(letter) => Some(vec![(letter.ascii, letter.beyond)]),
            PatternKind::Group(_, of) => self.first(*of),
            PatternKind::Repeat { least: 0, .. } => None,
            PatternKind::Repeat { of, .. } => self.first(*of),
            PatternKind::Both(left, right) => match &self.parts[*left] {
                PatternKind::Border(_) | PatternKind::Empty => self.first(*right),
                _ => self.first(*left),
            },
            PatternKind::Either(all) => {
                let mut letters = vec![];
                for of in all {
                    letters.extend(self.first(*of)?);
                }
                Some(letters)
            }
        }
    }

    fn are_disjoint(&self, all: &[NodeId]) -> bool {
        let Some(firsts) = all.iter().map(|of| self.first(*of)).collect::<Option<Vec<_>>>() else { return false };
        firsts.iter().enumerate().all(|(at, first)| firsts[..at].iter().all(|other| are_apart(first, other)))
    }
}

fn are_apart(left: &[(u128, NonAsciiClass)], right: &[(u128, NonAsciiClass)]) -> bool {
    let beyond = |left: NonAsciiClass, right: NonAsciiClass| match (left, right) {
        (NonAsciiClass::None, _) | (_, NonAsciiClass::None) => true,
        (left, right) => left != right && left != NonAsciiClass::Any && right != NonAsciiClass::Any,
    };
    left.iter().all(|left| right.iter().all(|right| left.0 & right.0 == 0 && beyond(left.1, right.1)))
}

fn too_complex() -> SqlError {
    SqlError::new(state::TOO_COMPLEX, "the regular expression has too many ways to match")
        .with_hint("shorter texts, or alternatives of which none begins as another")
}

/// Where parts end, of one text.
struct EndFinder<'a> {
    tree: &'a Tree,
    text: &'a str,
    known: HashMap<(NodeId, usize), Rc<Vec<usize>>>,
    work: &'a Cell<usize>,
}

impl EndFinder<'_> {
    /// In their order.
    fn of(&mut self, part: NodeId, start: usize) -> Result<Rc<Vec<usize>>, SqlError> {
        if let Some(known) = self.known.get(&(part, start)) {
            return Ok(Rc::clone(known));
        }
        let tree = self.tree;
        let all: Vec<usize> = match &tree.parts[part] {
            PatternKind::Empty => vec![start],
            PatternKind::Letter(letter) => match self.text[start..].chars().next() {
                Some(of) if letter.is(of) => vec![start + of.len_utf8()],
                _ => vec![],
            },
            PatternKind::Border(border) => {
                if self.is_at(*border, start) {
                    vec![start]
                } else {
                    vec![]
                }
            }
            PatternKind::Group(_, of) => self.of(*of, start)?.to_vec(),
            PatternKind::Repeat { of, least, most, .. } => {
                let mut now = BTreeSet::from([start]);
                for _ in 0..*least {
                    now = self.behind(*of, &now)?;
                }
                let (mut all, mut last, mut n_more) = (now.clone(), now, most.map(|most| most - least));
                while !last.is_empty() && n_more != Some(0) {
                    last = self.behind(*of, &last)?.difference(&all).copied().collect();
                    all.extend(&last);
                    n_more = n_more.map(|n| n - 1);
                }
                all.into_iter().collect()
            }
            PatternKind::Both(left, right) => {
                let middles: BTreeSet<usize> = self.of(*left, start)?.iter().copied().collect();
                self.behind(*right, &middles)?.into_iter().collect()
            }
            PatternKind::Either(parts) => {
                let mut all = BTreeSet::new();
                for of in parts {
                    all.extend(self.of(*of, start)?.iter());
                }
                all.into_iter().collect()
            }
        };
        self.count(all.len() + 1)?;
        let all = Rc::new(all);
        self.known.insert((part, start), Rc::clone(&all));
        Ok(all)
    }

    fn count(&self, n: usize) -> Result<(), SqlError> {
        self.work.set(self.work.get() + n);
        if self.work.get() > MAX_ENDS { Err(too_complex()) } else { Ok(()) }
    }

    fn behind(&mut self, part: NodeId, starts: &BTreeSet<usize>) -> Result<BTreeSet<usize>, SqlError> {
        let mut all = BTreeSet::new();
        for start in starts {
            let ends = self.of(part, *start)?;
            self.count(ends.len())?;
            all.extend(ends.iter());
        }
        Ok(all)
    }

    fn is_at(&self, border: Border, at: usize) -> bool {
        let is_word = |letter: Option<char>| {
            letter.is_some_and(|letter| self.tree.word.is_match(letter.encode_utf8(&mut [0; 4])))
        };
        let (before, behind) = (self.text[..at].chars().next_back(), self.text[at..].chars().next());
        match border {
            Border::Start => at == 0,
            Border::End => at == self.text.len(),
            Border::LineStart => before.is_none_or(|letter| letter == '\n'),
            Border::LineEnd => behind.is_none_or(|letter| letter == '\n'),
            Border::Word => is_word(before) != is_word(behind),
            Border::NotWord => is_word(before) == is_word(behind),
            Border::WordStart => !is_word(before) && is_word(behind),
            Border::WordEnd => is_word(before) && !is_word(behind),
        }
    }

    /// Finds the groups of a part that begins and ends there.
    fn dissect(&mut self, part: NodeId, start: usize, end: usize, groups: &mut [GroupSpan]) -> Result<(), SqlError> {
        let tree = self.tree;
        if !tree.has_groups(part) {
            return Ok(());
        }
        match &tree.parts[part] {
            PatternKind::Group(nth, of) => {
                groups[*nth] = Some((start, end));
                self.dissect(*of, start, end, groups)
            }
            PatternKind::Both(left, right) => {
                for middle in self.in_order(*left, start)? {
                    if self.of(*right, middle)?.binary_search(&end).is_ok() {
                        self.dissect(*left, start, middle, groups)?;
                        return self.dissect(*right, middle, end, groups);
                    }
                }
                Ok(())
            }
            PatternKind::Either(all) => {
                for of in all {
                    if self.of(*of, start)?.binary_search(&end).is_ok() {
                        return self.dissect(*of, start, end, groups);
                    }
                }
                Ok(())
            }
            PatternKind::Repeat { of, least, most, .. } => {
                let mut failed = BTreeSet::new();
                let mut steps = vec![];
                self.steps((*of, *least, *most), start, end, &mut steps, &mut failed)?;
                let mut from = start;
                for to in steps {
                    self.dissect(*of, from, to, groups)?;
                    from = to;
                }
                Ok(())
            }
            PatternKind::Empty | PatternKind::Letter(_) | PatternKind::Border(_) => Ok(()),
        }
    }

    /// The ends of a part, those that it prefers first.
    fn in_order(&mut self, part: NodeId, start: usize) -> Result<Vec<usize>, SqlError> {
        let mut ends = self.of(part, start)?.to_vec();
        if self.tree.prefers(part) != Some(MatchLength::Shortest) {
            ends.reverse();
        }
        Ok(ends)
    }

    /// Where each repetition ends, so that the last one ends at `end`. Each step takes a letter, but those that have to
    /// be there.
    fn steps(
        &mut self,
        (of, least, most): (NodeId, u32, Option<u32>),
        start: usize,
        end: usize,
        steps: &mut Vec<usize>,
        failed: &mut BTreeSet<(usize, usize)>,
    ) -> Result<bool, SqlError> {
        // What is left to try at each step, instead of calls in calls: a text may be long.
        let mut left: Vec<std::vec::IntoIter<usize>> = vec![];
        let mut at = start;
        loop {
            let n = steps.len();
            if at == end && n >= least as usize {
                return Ok(true);
            }
            let may_go_on = most.is_none_or(|most| n < most as usize) && !failed.contains(&(n, at));
            let next = if may_go_on { self.in_order(of, at)? } else { vec![] };
            left.push(next.into_iter());
            loop {
                let Some(here) = left.last_mut() else { return Ok(false) };
                let must = steps.len() < least as usize;
                if let Some(to) = here.find(|to| *to <= end && (*to > at || must)) {
                    steps.push(to);
                    at = to;
                    break;
                }
                failed.insert((steps.len(), at));
                self.count(1)?;
                left.pop();
                steps.pop();
                at = steps.last().copied().unwrap_or(start);
            }
        }
    }
}

impl Letter {
    fn is(&self, of: char) -> bool {
        match of.is_ascii() {
            true => self.ascii & (1 << u32::from(of)) != 0,
            false => self.beyond != NonAsciiClass::None && self.is.is_match(of.encode_utf8(&mut [0; 4])),
        }
    }
}

/// Reads a pattern, which the engine has taken before.
struct PatternParser<'a> {
    tree: Tree,
    rest: &'a str,
    flags: Flags,
    depth: usize,
}

impl<'a> PatternParser<'a> {
    fn add(&mut self, kind: PatternKind) -> NodeId {
        self.tree.parts.push(kind);
        self.tree.parts.len() - 1
    }

    fn alternatives(&mut self) -> Result<NodeId, SqlError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_complex());
        }
        let mut all = vec![self.sequence()?];
        while let Some(rest) = self.rest.strip_prefix('|') {
            self.rest = rest;
            all.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(if all.len() == 1 { all[0] } else { self.add(PatternKind::Either(all)) })
    }

    fn sequence(&mut self) -> Result<NodeId, SqlError> {
        let mut items = vec![];
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            let atom = self.atom()?;
            items.push(self.quantified(atom));
        }
        let Some(mut all) = items.pop() else { return Ok(self.add(PatternKind::Empty)) };
        while let Some(left) = items.pop() {
            all = self.add(PatternKind::Both(left, all));
        }
        Ok(all)
    }

    fn atom(&mut self) -> Result<NodeId, SqlError> {
        let Some(letter) = self.rest.chars().next() else { return Ok(self.add(PatternKind::Empty)) };
        let behind = &self.rest[letter.len_utf8()..];
        let lines = self.flags.has_lines;
        match letter {
            '(' => {
                let nth = match behind.strip_prefix("?:") {
                    Some(behind) => {
                        self.rest = behind;
                        None
                    }
                    None => {
                        self.rest = behind;
                        self.tree.n_groups += 1;
                        Some(self.tree.n_groups)
                    }
                };
                let of = self.alternatives()?;
                self.rest = self.rest.strip_prefix(')').unwrap_or(self.rest);
                Ok(nth.map_or(of, |nth| self.add(PatternKind::Group(nth, of))))
            }
            '^' | '$' => {
                self.rest = behind;
                Ok(self.add(PatternKind::Border(match (letter, lines) {
                    ('^', false) => Border::Start,
                    ('^', true) => Border::LineStart,
                    (_, false) => Border::End,
                    (_, true) => Border::LineEnd,
                })))
            }
            '\\' => {
                const BORDERS: [(&str, Border); 6] = [
                    ("b{start}", Border::WordStart),
                    ("b{end}", Border::WordEnd),
                    ("b", Border::Word),
                    ("B", Border::NotWord),
                    ("A", Border::Start),
                    ("z", Border::End),
                ];
                for (name, border) in BORDERS {
                    if let Some(behind) = behind.strip_prefix(name) {
                        self.rest = behind;
                        return Ok(self.add(PatternKind::Border(border)));
                    }
                }
                let n_bytes = behind.chars().next().map_or(0, char::len_utf8);
                let of = self.take(1 + n_bytes);
                self.letter(of)
            }
            '[' => {
                let of = self.take(class_length(self.rest));
                self.letter(of)
            }
            _ => {
                let of = self.take(letter.len_utf8());
                self.letter(of)
            }
        }
    }

    fn take(&mut self, n_bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(n_bytes);
        self.rest = rest;
        taken
    }

    /// One of the letters that the engine takes there.
    fn letter(&mut self, of: &str) -> Result<NodeId, SqlError> {
        let mut builder = RegexBuilder::new(&format!("^(?:{of})$"));
        builder.case_insensitive(self.flags.ignores_case).dot_matches_new_line(!self.flags.stops_at_newline);
        let is = builder.build().map_err(|_| too_complex())?;
        let ascii = (0..128_u8).filter(|code| is.is_match(char::from(*code).encode_utf8(&mut [0; 4])));
        let ascii = ascii.fold(0, |all, code| all | 1_u128 << code);
        let plain = of.strip_prefix('[').unwrap_or(of);
        let beyond = match of {
            r"\d" | r"\w" | "[\\d]" | "[\\w]" => NonAsciiClass::Words,
            r"\s" | "[\\s]" => NonAsciiClass::Spaces,
            "." => NonAsciiClass::Any,
            _ if of.starts_with("[^") || !of.is_ascii() || names_a_class(plain) => NonAsciiClass::Any,
            // The long s and the sign of Kelvin are letters of ASCII to those who ignore case.
            _ if self.flags.ignores_case && of.contains(['k', 'K', 's', 'S', '-']) => NonAsciiClass::Any,
            _ => NonAsciiClass::None,
        };
        Ok(self.add(PatternKind::Letter(Letter { is, ascii, beyond })))
    }

    fn quantified(&mut self, of: NodeId) -> NodeId {
        let (least, most, is_fixed, behind) = match self.rest.chars().next() {
            Some('*') => (0, None, false, &self.rest[1..]),
            Some('+') => (1, None, false, &self.rest[1..]),
            Some('?') => (0, Some(1), false, &self.rest[1..]),
            Some('{') => {
                let Some((bounds, behind)) = self.rest[1..].split_once('}') else { return of };
                let (least, most) = match bounds.split_once(',') {
                    None => (bounds, Some(bounds)),
                    Some((least, "")) => (least, None),
                    Some((least, most)) => (least, Some(most)),
                };
                let times = |of: &str| of.trim().parse::<u32>().unwrap_or_default();
                (times(least), most.map(times), !bounds.contains(','), behind)
            }
            _ => return of,
        };
        let (is_short, behind) = match behind.strip_prefix('?') {
            Some(behind) => (true, behind),
            None => (false, behind),
        };
        self.rest = behind;
        let prefers = if is_short { MatchLength::Shortest } else { MatchLength::Longest };
        let kind = PatternKind::Repeat { of, least, most, prefers: (!is_fixed).then_some(prefers) };
        let part = self.add(kind);
        self.quantified(part)
    }
}

/// Whether an escape of a class stands for letters beyond ASCII.
fn names_a_class(class: &str) -> bool {
    class.contains("[:")
        || class.split('\\').skip(1).any(|behind| behind.starts_with(['d', 'D', 's', 'S', 'w', 'W', 'p']))
}

/// Bytes of a class in brackets.
fn class_length(text: &str) -> usize {
    let (mut is_escaped, mut depth) = (false, 0_usize);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => depth += 1,
            ']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(pattern: &str, text: &str) -> Vec<Option<String>> {
        let tree = Tree::of(pattern, Flags::NONE).unwrap().unwrap_or_else(|| panic!("{pattern} is the engine's"));
        let found = tree.groups(text, 0, &Cell::default()).unwrap().unwrap_or_default();
        found.into_iter().map(|place| place.map(|(start, end)| text[start..end].to_owned())).collect()
    }

    /// What PostgreSQL 15 says.
    #[test]
    fn matches_are_as_long_as_they_prefer() {
        for (pattern, text, want) in [
            (".|...", "xyz", "xyz"),
            ("^(l*){1,1}?(.*)(f*)$", "llmmmfff", "llmmmfff||llmmmfff|"),
            ("^(l*){1,1}?(.*){1,1}?(f*)$", "llmmmfff", "llmmmfff||llmmm|fff"),
            ("^(l*?){1,1}(.*)(f*)$", "llmmmfff", "llmmmfff|ll|mmmfff|"),
            ("^(l*?){1,1}?(.*){1,1}?(f*)$", "llmmmfff", "llmmmfff||llmmm|fff"),
            ("(?:(.*?)(\\d+)(.*)){1,1}", "abc01234xyz", "abc01234xyz|abc|01234|xyz"),
            ("(a|ab)(c|bcd)(d*)", "abcd", "abcd|ab|c|d"),
            ("(a?)(ab)?", "ab", "ab||ab"),
            ("(foo|foobar)+", "foobarfoo", "foobarfoo|foo"),
            ("a{2}?b*b*", "aabb", "aabb"),
        ] {
            let found = groups(pattern, text).into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join("|");
            assert_eq!(found, want, "{pattern}");
        }
    }

    #[test]
    fn most_patterns_are_the_engines() {
        let is_alike = |pattern: &str| Tree::of(pattern, Flags::NONE).unwrap().is_none();
        for pattern in [
            "abc",
            "^https?://(?:www\\.)?([^/]+)/.*$",
            r"\d+\.\d+",
            r"(\w+)\s*=\s*(\w+)",
            r"(\w+)@(\w+)",
            "a.*?b",
            "cat|dog|mouse",
            "(a|b)+",
            "^(.*)-(.*)$",
            "[0-9]{4}-[0-9]{2}",
        ] {
            assert!(is_alike(pattern), "{pattern}");
        }
        for pattern in [".|...", "a|ab", "(a?)(ab)?", "(foo|foobar)*", "a*a*", "a*?b*", "(?:a*)*"] {
            assert!(!is_alike(pattern), "{pattern}");
        }
    }

    #[test]
    fn work_is_bounded() {
        let tree = Tree::of("(a|aa)*(a|aa)*b?", Flags::NONE).unwrap().unwrap();
        let error = tree.groups(&"a".repeat(100_000), 0, &Cell::default()).unwrap_err();
        assert_eq!(error.state(), state::TOO_COMPLEX);
    }
}
