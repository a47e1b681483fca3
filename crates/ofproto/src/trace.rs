//! The record of a translation for people: the lines of `ofproto/trace`, and the reason for each bit of the mask.

use crate::trace_passes::Forked;
use sluice_fate::Limit;
use sluice_flow::{FlowKey, Match, PortNames};

/// Bytes of text of one pass of a trace, at most. What is left out is said.
const MAX_TEXT: usize = 4 << 20;

/// The kind of a line.
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

/// A line and the lines below it.
#[derive(Debug)]
struct TraceNode {
    kind: TraceKind,
    text: String,
    children: Vec<usize>,
}

/// Records a translation.
#[derive(Debug)]
pub(crate) struct Tracer {
    nodes: Vec<TraceNode>,
    /// The section that new lines belong to.
    at: usize,
    /// Bytes of the lines' text.
    text_bytes: usize,
    /// New bits of the mask, and what looked at them, in order.
    reasons: Vec<(FlowKey, String)>,
    seen: FlowKey,
    /// Whether rules show port names.
    pub names: bool,
    /// The current action and its rule.
    pub actor: String,
    /// Copies of the packet that recirculate.
    pub forked: Vec<Forked>,
}

impl Tracer {
    pub fn new(names: bool) -> Self {
        let root = TraceNode { kind: TraceKind::Bridge, text: String::new(), children: Vec::new() };
        Tracer {
            nodes: vec![root],
            at: 0,
            text_bytes: 0,
            reasons: Vec::new(),
            seen: FlowKey::ZERO,
            names,
            actor: String::new(),
            forked: Vec::new(),
        }
    }

    /// Whether no further line is recorded.
    pub fn is_full(&self) -> bool {
        self.text_bytes > MAX_TEXT
    }

    /// Records a line; returns its section.
    pub fn say(&mut self, kind: TraceKind, text: impl FnOnce() -> String) -> usize {
        if self.is_full() {
            return self.at;
        }
        let mut text = text();
        self.text_bytes += text.len() + 1;
        if self.is_full() {
            Limit::TraceText.hit();
            text = format!("... the trace is cut here, after {MAX_TEXT} bytes");
        }
        let id = self.nodes.len();
        self.nodes.push(TraceNode { kind, text, children: Vec::new() });
        self.nodes[self.at].children.push(id);
        id
    }

    /// Begins a section; returns what `close` needs to end it.
    pub fn open(&mut self, kind: TraceKind, text: impl FnOnce() -> String) -> usize {
        let id = self.say(kind, text);
        std::mem::replace(&mut self.at, id)
    }

    pub fn close(&mut self, section: usize) {
        self.at = section;
    }

    /// Whether the mask has bits without a reason.
    pub fn has_new_bits(&self, wc: &FlowKey) -> bool {
        self.seen.and(wc) != *wc
    }

    /// Records the reason for the new bits.
    pub fn attribute(&mut self, wc: &FlowKey, who: String) {
        let mut new_bits = wc.clone();
        for (line, seen) in new_bits.lines.iter_mut().zip(&self.seen.lines) {
            line.0.iter_mut().zip(seen.0).for_each(|(byte, seen)| *byte &= !seen);
        }
        self.seen.or_with(wc);
        self.reasons.push((new_bits, who));
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
            // The last section of a level stays at that level, so that a chain of tables does not move to the right.
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

    /// For each reason, the bits of the final mask that it added.
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
