//! Reading groups as `ovs-ofctl add-group` and its kin take them.

use super::action_check;
use super::action_parse::ActionReader;
use crate::consistency::Within;
use crate::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, BUCKET_MAX, Bucket, GROUP_ALL, GROUP_MAX, GroupCommand, GroupConfig,
    GroupKind, GroupMod, Selection,
};
use sluice_flow::field::Field;
use sluice_flow::text::{Delimiter, FlowTextError, Pair, Piece, SyntaxError, number, value};
use sluice_flow::{FieldId, FieldValue, OfPort, PortNames};

/// Longest name of a selection method, bytes. Source: `NTR_MAX_SELECTION_METHOD_LEN` less its NUL.
const METHOD_MAX: usize = 15;

impl GroupMod {
    /// Reads one change of the groups, as the `ovs-ofctl` command for it takes it.
    pub fn parse(text: &str, command: GroupCommand, ports: &PortNames) -> Result<GroupMod, FlowTextError> {
        read(Piece::new(text), command, ports).map_err(|e| e.located(text))
    }

    /// Reads a file of groups as `ovs-ofctl add-groups` takes it: one a line, `#` begins a comment; a line may begin
    /// with `add`, `modify`, `add_or_mod`, `delete`, `insert_bucket` or `remove_bucket`.
    pub fn parse_file(text: &str, ports: &PortNames) -> Result<Vec<GroupMod>, FlowTextError> {
        let (mut groups, mut at) = (Vec::new(), 0);
        for line in text.split_inclusive('\n') {
            let piece = Piece { text: line.split('#').next().unwrap_or(""), at }.trim();
            at += line.len();
            if !piece.is_empty() {
                let (command, group) = leading_command(piece);
                groups.push(read(group, command, ports).map_err(|e| e.located(text))?);
            }
        }
        Ok(groups)
    }
}

fn leading_command(text: Piece<'_>) -> (GroupCommand, Piece<'_>) {
    let end = text.text.find([',', ' ', '\t']).unwrap_or(text.text.len());
    let (word, rest) = text.split_at(end);
    let command = match word.text {
        "add" => GroupCommand::Add,
        "modify" => GroupCommand::Modify,
        "add_or_mod" => GroupCommand::AddOrModify,
        "delete" => GroupCommand::Delete,
        "insert_bucket" => GroupCommand::InsertBucket,
        "remove_bucket" => GroupCommand::RemoveBucket,
        _ => return (GroupCommand::Add, text),
    };
    (command, rest)
}

/// What stands before the first bucket.
struct Head<'a> {
    group: Option<u32>,
    kind: Option<GroupKind>,
    command_bucket: Option<u32>,
    selection: Selection,
    /// Where the fields stand.
    fields_at: Option<Piece<'a>>,
}

fn read(text: Piece<'_>, command: GroupCommand, ports: &PortNames) -> Result<GroupMod, SyntaxError> {
    let defines = matches!(command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify);
    let (before, buckets) = match text.text.find("bucket=") {
        // `command_bucket=` is no key, but the text of a name may end so.
        Some(n) => (text.split_at(n).0, Some(text.split_at(n).1)),
        None => (text, None),
    };
    let head = read_head(before, command, defines, ports)?;
    let end = text.split_at(text.text.len()).1;
    let group = match (head.group, command) {
        (Some(group), _) => group,
        (None, GroupCommand::Delete) if text.trim().is_empty() => GROUP_ALL,
        _ => return Err(end.error("group_id=ID")),
    };
    let kind = match head.kind {
        Some(kind) => kind,
        None if defines => return Err(end.error("type=all, select, indirect or ff")),
        None => GroupKind::All,
    };
    let command_bucket = match (command, head.command_bucket) {
        (GroupCommand::InsertBucket, None) => return Err(end.error("command_bucket_id=first, last or a bucket's id")),
        (_, bucket) => bucket.unwrap_or(BUCKET_ALL),
    };
    check_selection(&head, before)?;
    let takes_buckets = defines || command == GroupCommand::InsertBucket;
    let mut config = GroupConfig { kind, buckets: Vec::new(), selection: head.selection };
    if let Some(buckets) = buckets {
        if !takes_buckets {
            return Err(buckets.conflict("buckets", "none in this command"));
        }
        for bucket in split_buckets(buckets) {
            config.buckets.push(read_bucket(bucket, kind, command, ports)?);
        }
    }
    if kind == GroupKind::Indirect && config.buckets.len() > 1 {
        return Err(text.conflict("several buckets", "one bucket in an indirect group"));
    }
    Ok(GroupMod { command, group, command_bucket, config })
}

fn read_head<'a>(
    text: Piece<'a>,
    command: GroupCommand,
    defines: bool,
    ports: &PortNames,
) -> Result<Head<'a>, SyntaxError> {
    let mut head =
        Head { group: None, kind: None, command_bucket: None, selection: Selection::default(), fields_at: None };
    let edits = matches!(command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket);
    let mut rest = text;
    while let Some(pair) = rest.next_pair()? {
        let value = pair.value;
        match pair.key.text {
            "group_id" => head.group = Some(group_id(value)?),
            "command_bucket_id" if edits => head.command_bucket = Some(command_bucket(value, command)?),
            "type" if defines => head.kind = Some(kind(value)?),
            "selection_method" if defines && value.text.len() <= METHOD_MAX => {
                head.selection.method = value.text.to_owned();
            }
            "selection_method" if defines => return Err(value.error(format!("at most {METHOD_MAX} letters"))),
            "selection_method_param" if defines => head.selection.parameter = number::u64(value)?,
            "fields" if defines => {
                head.selection.fields = fields(&pair, ports)?;
                head.fields_at = Some(pair.key);
            }
            _ if defines => {
                return Err(pair
                    .key
                    .error("group_id, type, selection_method, selection_method_param, fields or bucket"));
            }
            _ if edits => return Err(pair.key.error("group_id, command_bucket_id or bucket")),
            _ => return Err(pair.key.error("group_id")),
        }
    }
    Ok(head)
}

fn check_selection(head: &Head<'_>, text: Piece<'_>) -> Result<(), SyntaxError> {
    let Selection { method, parameter, fields } = &head.selection;
    if !matches!(method.as_str(), "" | "hash" | "dp_hash") {
        return Err(text.conflict(format!("selection_method={method}"), "selection_method=hash or dp_hash"));
    }
    if !method.is_empty() && head.kind != Some(GroupKind::Select) {
        return Err(text.conflict("a selection_method", "one in a group of type=select only"));
    }
    if let (Some(at), false) = (head.fields_at, fields.is_empty())
        && method != "hash"
    {
        return Err(at.conflict("fields", "fields with selection_method=hash only"));
    }
    if method.is_empty() && *parameter != 0 {
        return Err(text.conflict("selection_method_param", "selection_method_param with selection_method only"));
    }
    Ok(())
}

fn group_id(text: Piece<'_>) -> Result<u32, SyntaxError> {
    if text.text == "all" {
        return Ok(GROUP_ALL);
    }
    match number::u32(text)? {
        id if id <= GROUP_MAX || id == GROUP_ALL => Ok(id),
        _ => Err(text.error(format!("a group's number, at most {GROUP_MAX}, or all"))),
    }
}

fn command_bucket(text: Piece<'_>, command: GroupCommand) -> Result<u32, SyntaxError> {
    match text.text {
        "first" => Ok(BUCKET_FIRST),
        "last" => Ok(BUCKET_LAST),
        "all" if command == GroupCommand::RemoveBucket => Ok(BUCKET_ALL),
        _ => match number::u32(text)? {
            id if id <= BUCKET_MAX => Ok(id),
            _ => Err(text.error("a bucket's id, first or last; all to remove every bucket")),
        },
    }
}

fn kind(text: Piece<'_>) -> Result<GroupKind, SyntaxError> {
    match text.text {
        "all" => Ok(GroupKind::All),
        "select" => Ok(GroupKind::Select),
        "indirect" => Ok(GroupKind::Indirect),
        "ff" | "fast_failover" => Ok(GroupKind::FastFailover),
        _ => Err(text.error("all, select, indirect or ff")),
    }
}

/// `fields=NAME` or `fields(NAME[=MASK],…)`.
fn fields(pair: &Pair<'_>, ports: &PortNames) -> Result<Vec<(FieldId, FieldValue)>, SyntaxError> {
    let mut out: Vec<(FieldId, FieldValue)> = Vec::new();
    let mut rest = pair.value;
    while let Some(pair) = rest.next_pair()? {
        let Some(field) = Field::by_name(pair.key.text) else {
            return Err(pair.key.error("the name of a field"));
        };
        if out.iter().any(|(id, _)| *id == field.id) {
            return Err(pair.key.conflict(format!("{} again", pair.key.text), "each field once"));
        }
        let mask = match pair.delimiter {
            Delimiter::None => field.all_ones_wide(),
            // What is written like a value is a mask.
            _ => value::parse_wide(field, pair.value, ports)?.0,
        };
        if mask.is_zero() {
            return Err(pair.value.error("a mask that is not zero"));
        }
        if !field.maskable && mask != field.all_ones_wide() {
            return Err(pair.value.error(format!("no mask, since {} cannot have one", field.name)));
        }
        out.push((field.id, mask.into()));
    }
    out.sort_by_key(|(id, _)| *id as usize);
    Ok(out)
}

/// The text of each bucket, without `bucket=`.
fn split_buckets(text: Piece<'_>) -> Vec<Piece<'_>> {
    const KEY: &str = "bucket=";
    let starts: Vec<usize> = text.text.match_indices(KEY).map(|(n, _)| n).collect();
    let ends = starts.iter().copied().skip(1).chain([text.text.len()]);
    let of = |(start, end): (&usize, usize)| text.split_at(end).0.split_at(start + KEY.len()).1;
    starts.iter().zip(ends).map(of).collect()
}

fn read_bucket(
    text: Piece<'_>,
    kind: GroupKind,
    command: GroupCommand,
    ports: &PortNames,
) -> Result<Bucket, SyntaxError> {
    let mut bucket = Bucket::new(BUCKET_ALL, Vec::new());
    let mut weight = None;
    let (mut placed, mut has_actions) = (Vec::new(), false);
    let reader = ActionReader::new(ports);
    let mut rest = text;
    loop {
        let start = rest.skip_gap();
        let Some(pair) = rest.next_pair()? else { break };
        let value = pair.value;
        match pair.key.text {
            "weight" => weight = Some((number::u16(value)?, value)),
            "watch_port" => bucket.watch_port = watch_port(value, ports)?,
            "watch_group" => bucket.watch_group = Some(watch_group(value)?),
            "bucket_id" => match number::u32(value)? {
                id if id <= BUCKET_MAX => bucket.id = id,
                _ => return Err(value.error(format!("a bucket's id, at most {BUCKET_MAX}"))),
            },
            key => {
                let action =
                    if matches!(key, "action" | "actions") { value } else { start.split_at(rest.at - start.at).0 };
                placed.extend(reader.placed_list(action, Within::Bucket)?);
                has_actions = true;
            }
        }
    }
    action_check::order(&placed, Within::Bucket)?;
    if !has_actions {
        return Err(text.error("actions=… in the bucket"));
    }
    let is_select = kind == GroupKind::Select;
    bucket.weight = weight.map_or(u16::from(is_select), |(weight, _)| weight);
    match weight {
        Some((1.., at)) if !is_select && command != GroupCommand::InsertBucket => {
            return Err(at.conflict("a weight", "weights in select groups only"));
        }
        _ => {}
    }
    if kind == GroupKind::FastFailover && bucket.watch_port.is_none() && bucket.watch_group.is_none() {
        return Err(text.error("watch_port or watch_group in a bucket of a fast failover group"));
    }
    bucket.actions = placed.into_iter().map(|p| p.action).collect();
    Ok(bucket)
}

fn watch_port(text: Piece<'_>, ports: &PortNames) -> Result<Option<OfPort>, SyntaxError> {
    match ports.parse_piece(text)? {
        OfPort::NONE => Ok(None),
        port if port.is_ordinary() || port == OfPort::CONTROLLER => Ok(Some(port)),
        _ => Err(text.error("an ordinary port, or CONTROLLER")),
    }
}

fn watch_group(text: Piece<'_>) -> Result<u32, SyntaxError> {
    match number::u32(text)? {
        id if id <= GROUP_MAX => Ok(id),
        _ => Err(text.error(format!("a group's number, at most {GROUP_MAX}"))),
    }
}
