//! The record of a translation for people: OVS's trace, and why the megaflow has its bits.

use crate::trace_passes::Forked;
use sluice_flow::{FlowKey, Match, PortNames};

/// What a line of a trace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceKind {
    Bridge,
    Table,
    Thaw,
    Bucket,
    Action,
    Detail,
    Warning,
    Error,
}

/// A line with what happened because of it.
#[derive(Debug)]
struct TraceNode {
    kind: TraceKind,
    text: String,
    children: Vec<usize>,
}

/// Writes down what a translation says.
#[derive(Debug)]
pub(crate) struct Tracer {
    nodes: Vec<TraceNode>,
    /// The section that lines go to.
    at: usize,
    /// Bits of the mask as they came, and who looked at them.
    reasons: Vec<(FlowKey, String)>,
    seen: FlowKey,
    /// Whether rules name ports.
    pub names: bool,
    /// The action under way, and where it stands.
    pub actor: String,
    /// Copies of the packet that come round again.
    pub forked: Vec<Forked>,
}

impl Tracer {
    pub fn new(names: bool) -> Self {
        let root = TraceNode { kind: TraceKind::Bridge, text: String::new(), children: Vec::new() };
        Tracer {
            nodes: vec![root],
            at: 0,
            reasons: Vec::new(),
            seen: FlowKey::ZERO,
            names,
            actor: String::new(),
            forked: Vec::new(),
        }
    }

    pub fn say(&mut self, kind: TraceKind, text: String) -> usize {
        let id = self.nodes.len();
        self.nodes.push(TraceNode { kind, text, children: Vec::new() });
        self.nodes[self.at].children.push(id);
        id
    }

    /// Begins a section; what `close` needs to end it.
    pub fn open(&mut self, kind: TraceKind, text: String) -> usize {
        let id = self.say(kind, text);
        std::mem::replace(&mut self.at, id)
    }

    pub fn close(&mut self, section: usize) {
        self.at = section;
    }

    /// Whether the mask has bits that nobody has been named for.
    pub fn has_news(&self, wc: &FlowKey) -> bool {
        self.seen.and(wc) != *wc
    }

    /// Names who looked at the bits that are new.
    pub fn attribute(&mut self, wc: &FlowKey, who: String) {
        let mut news = *wc;
        for (line, seen) in news.lines.iter_mut().zip(&self.seen.lines) {
            line.0.iter_mut().zip(seen.0).for_each(|(byte, seen)| *byte &= !seen);
        }
        self.seen.or_with(wc);
        self.reasons.push((news, who));
    }

    /// The lines, indented as OVS does.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&self.nodes[0].children, 0, &mut out);
        out
    }

    fn write(&self, nodes: &[usize], level: usize, out: &mut String) {
        for (i, &id) in nodes.iter().enumerate() {
            let node = &self.nodes[id];
            let is_section = matches!(node.kind, TraceKind::Bridge | TraceKind::Table | TraceKind::Thaw);
            // The last section of a level goes on at that level: a chain of tables does not wander off to the right.
            let level = level + usize::from(i + 1 != nodes.len() || !is_section);
            let indent = " ".repeat(level * 4);
            if node.kind == TraceKind::Bridge {
                out.push('\n');
            }
            let text = &node.text;
            out.push_str(&match node.kind {
                TraceKind::Detail => format!("{indent} -> {text}\n"),
                TraceKind::Warning => format!("{indent} >> {text}\n"),
                TraceKind::Error => format!("{indent} >>>> {text} <<<<\n"),
                TraceKind::Bridge => format!("{indent}{text}\n{indent}{}\n", "-".repeat(text.len())),
                TraceKind::Table | TraceKind::Thaw | TraceKind::Bucket | TraceKind::Action => {
                    format!("{indent}{text}\n")
                }
            });
            let more = usize::from(i + 1 != nodes.len() || !is_section);
            self.write(&node.children, level + more, out);
        }
    }

    /// For each reason the bits of the final mask that it put there.
    pub fn reasons(&self, mask: &FlowKey, key: &FlowKey, ports: &PortNames) -> String {
        let mut out = String::new();
        for (bits, who) in &self.reasons {
            let bits = bits.and(mask);
            if bits != FlowKey::ZERO {
                let bits = Match::new(bits, key);
                out += &format!("  {}: {who}\n", bits.display(ports, sluice_flow::DEFAULT_PRIORITY));
            }
        }
        out
    }
}
